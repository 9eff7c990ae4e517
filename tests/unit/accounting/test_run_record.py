# SPDX-License-Identifier: Apache-2.0
"""The record of a run: what processes write into it, what is read of it, and what is never written to."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from lockcache.filestream.accounting import RUN_HEAD, RunCounts, RunPart, append_parts, read_run
from lockcache.filestream.accounting.run_record import write_part

PART_BYTES = 1024


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record"
    path.write_bytes(RUN_HEAD)
    return path


def test_a_process_writes_over_its_own_part_alone(record: Path) -> None:
    first, second = RunPart(found=1, labels=("a b",)), RunPart(compiled=2, refusals=("cupy: too old",))
    offset = write_part(str(record), first, None)
    assert write_part(str(record), second, None) == offset + PART_BYTES
    assert write_part(str(record), first._replace(found=7), offset) == offset
    assert read_run(None, str(record)) == [first._replace(found=7), second]
    assert record.stat().st_size == 3 * PART_BYTES
    append_parts(str(record), [second])
    assert len(read_run(None, str(record))) == 3


def test_texts_and_numbers_that_do_not_fit_are_cut(record: Path) -> None:
    labels = ("\udc80" * 9000, "two\nlines", "", "a fourth")
    part = RunPart(-5, 2**70, labels=labels, refusals=("x" * 9000, "y" * 9000, "z" * 9000))
    write_part(str(record), part, None)
    [found] = read_run(None, str(record))
    assert found[:2] == (0, 2**63 - 1)
    assert (found.labels[0][:3], found.labels[1:]) == ("???", ("two lines", "?"))
    assert [len(refusal) for refusal in found.refusals] == [250, 250, 250]


def test_what_is_not_a_part_is_left_out(record: Path) -> None:
    part = RunPart(found=3)
    with record.open("ab") as file:
        file.write(os.urandom(PART_BYTES) + bytes(PART_BYTES))
    write_part(str(record), part, None)
    with record.open("ab") as file:
        file.write(b"half of a part")
    assert read_run(None, str(record)) == [part]


@pytest.mark.parametrize("planted", ["another file", "symlink", "hard link", "folder", "pipe", "nothing"])
def test_only_a_record_is_written_to(planted: str, record: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "planted", tmp_path / "other"
    other.write_bytes(b"precious" if planted != "hard link" else RUN_HEAD)
    {
        "another file": lambda: path.write_bytes(b"precious"),
        "symlink": lambda: path.symlink_to(record),
        "hard link": lambda: os.link(other, path),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "nothing": lambda: None,
    }[planted]()
    before = {each: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    counts = RunCounts(str(path))
    counts.begin()
    counts.compiled("name", "label", is_stored=True)
    counts.end()
    assert {each: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()} == before
    if planted != "hard link":
        with pytest.raises(OSError):  # noqa: PT011 - the kernel's, or its own
            read_run(None, str(path))


def test_a_hit_is_written_with_the_next_report_and_counted_once(record: Path) -> None:
    counts = RunCounts(str(record))
    counts.begin()
    begun = record.read_bytes()
    counts.found("a", 5)
    counts.found("a", 5)
    counts.found("b", 0)
    assert record.read_bytes() == begun
    counts.compiled("c", "kernel", is_stored=False)
    counts.found("c", 5)
    expected = RunPart(found=2, costless=1, compiled=1, not_stored=1, not_spent_ns=5, labels=("kernel",))
    assert read_run(None, str(record)) == [expected]
    counts.end()
    assert read_run(None, str(record)) == [expected._replace(has_ended=1)]


def test_a_wait_takes_no_more_from_the_time_not_spent_than_the_program_gave(record: Path) -> None:
    counts = RunCounts(str(record))
    for name, cost_ns, waited_ns in (("short", 100, 40), ("long", 100, 400), ("own", 0, 10)):
        counts.found(name, cost_ns)
        counts.waited(name, waited_ns)
    [part] = read_run(None, str(record))
    assert (part.waits, part.waited_ns, part.not_spent_ns) == (3, 450, 60)


def test_what_another_process_stored_meanwhile_was_compiled_and_not_found(record: Path) -> None:
    counts = RunCounts(str(record))
    counts.found("a", 100)
    counts.compiled_in_vain("a", 100)
    [part] = read_run(None, str(record))
    assert (part.found, part.costless, part.not_spent_ns, part.compiled) == (0, 0, 0, 1)


def test_threads_that_compile_at_once_have_one_part_with_all_of_it(record: Path) -> None:
    counts = RunCounts(str(record))
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for each in range(50):
            counts.compiled(f"{number}-{each}", "", is_stored=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [part] = read_run(None, str(record))
    assert part.compiled == 400


def test_a_copy_counts_by_where_it_came_from(record: Path) -> None:
    counts = RunCounts(str(record))
    assert not counts.copied("of a compiler", 0, "stored")
    assert counts.copied("of a source", 100, "found")
    assert counts.copied("of a source", 100, "stored")
    counts.end()
    [part] = read_run(None, str(record))
    assert (part.found, part.not_spent_ns, part.compiled) == (1, 100, 0)

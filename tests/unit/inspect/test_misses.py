# SPDX-License-Identifier: Apache-2.0
"""The ring of misses: the last ones, whatever else is found in their places."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import Part, bounded, make_part, state
from lockcache.filestream.accounting import read_counters
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.inspect.misses import MOST_MISSES, Miss, add_misses_locked, read_misses
from lockcache.reports import Counters, CountersReport, reports

PART = make_part("option arch", b"1", "sm_90")


def miss(number: int, parts: list[Part] | None = None, label: str = "saxpy") -> Miss:
    return Miss(10**18 + number, entry_name(b"%d" % number), label, tuple(parts or [PART]))


def test_the_last_ones_are_kept_the_latest_first(layout: Layout) -> None:
    assert read_misses(layout) == []
    for number in range(MOST_MISSES + 7):
        add_misses_locked(layout, [miss(number)])
    assert read_misses(layout) == [miss(number) for number in reversed(range(7, MOST_MISSES + 7))]
    add_misses_locked(layout, [miss(number) for number in range(100, 2 * MOST_MISSES + 107)])
    assert read_misses(layout) == [miss(number) for number in reversed(range(MOST_MISSES + 107, 2 * MOST_MISSES + 107))]
    assert os.stat(layout.misses).st_size <= 1 << 15
    assert os.stat(layout.misses).st_mode & 0o777 == 0o600


def test_the_largest_that_there_can_be_fit(layout: Layout) -> None:
    parts = bounded([make_part(f"define M{n}", b"%d" % n, "x" * 60) for n in range(100)])
    for label, kept in (("x" * 80, "x" * 80), ("\N{GREEK SMALL LETTER ALPHA}" * 120, "")):
        add_misses_locked(layout, [miss(int(kept == ""), parts, label)])
        assert read_misses(layout)[0] == miss(int(kept == ""), parts, kept)


@pytest.mark.parametrize("slot", [0, 3])
@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff", b"LCm\x02", b"LCm\x01\xff\xff"])
def test_a_slot_that_was_cut_off_is_one_less_and_is_used_again(layout: Layout, slot: int, damage: bytes) -> None:
    add_misses_locked(layout, [miss(number) for number in range(5)])
    with open(layout.misses, "rb+") as ring:
        ring.seek(slot * 1280 + (20 if damage == b"\xff" else 0))
        ring.write(damage)
    left = [miss(number) for number in (4, 3, 2, 1, 0) if number != slot]
    assert read_misses(layout) == left
    add_misses_locked(layout, [miss(9)])
    assert read_misses(layout) == [miss(9), *left]


def test_one_from_the_future_is_replaced_first(layout: Layout) -> None:
    add_misses_locked(layout, [miss(0)._replace(time_ns=time.time_ns() + 10**18)])
    add_misses_locked(layout, [miss(number) for number in range(MOST_MISSES)])
    assert read_misses(layout)[0] == miss(MOST_MISSES - 1)
    assert len(read_misses(layout)) == MOST_MISSES


@pytest.mark.parametrize("body", [b"[]", b"{}", b"[1,2,3,4]", b'["x","n","l",[]]', b"[" * 500, b"null"])
def test_what_no_writer_wrote_is_nothing(layout: Layout, body: bytes) -> None:
    from lockcache.filestream.inspect import misses

    blob = misses._HEAD.pack(misses._MAGIC, len(body), misses.xxh3_64_intdigest(body)) + body
    Path(layout.misses).write_bytes(blob)
    assert all(isinstance(found, Miss) for found in read_misses(layout))


def test_a_miss_is_written_with_the_report(directory: CacheDirectory) -> None:
    layout, counts = directory.layout, Counters()
    report = CountersReport(lambda: counts, directory.counting, partial(add_misses_locked, layout))
    report.note(miss(1))
    report.report()
    assert read_misses(layout) == [], "nothing was counted"
    counts = Counters(misses=1)
    report.report()
    assert read_misses(layout) == [miss(1)]
    counts = Counters(misses=2)
    report.report()
    assert len(read_misses(layout)) == 1


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file grows over 3 kB, of which the state page has more: EFBIG, as a full disk or a quota says it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3072, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_without_room_misses_are_dropped_and_the_counters_counted_once(
    directory: CacheDirectory, small_files: None
) -> None:
    layout, counts = directory.layout, Counters(misses=5)
    report = CountersReport(lambda: counts, directory.counting, partial(add_misses_locked, layout))
    for number in range(5):
        report.note(miss(number))
    report.report()
    report.report()
    assert (read_counters(layout).misses, report.failures) == (5, 1)
    assert len(read_misses(layout)) == 3, "what there was room for"


def test_what_is_stored_under_a_stated_key_is_a_miss_and_a_hit_is_not(cache_path: Path) -> None:
    state(b"stated", {"option arch": "sm_90"}, "saxpy")
    with FileStreamProgramCache(cache_path) as cache:
        for _ in range(3):
            cache.get_or_compute(b"stated", lambda: b"code")
        cache[b"another"] = b"code"
        layout = cache._directory.layout
    [found] = read_misses(layout)
    assert (found.name, found.label, [part[::2] for part in found.parts]) == (
        entry_name(b"stated"),
        "saxpy",
        [("option arch", "sm_90")],
    )


def test_a_forked_child_writes_only_its_own(directory: CacheDirectory) -> None:
    layout, counts = directory.layout, Counters()
    report = CountersReport(lambda: counts, directory.counting, partial(add_misses_locked, layout))
    reports.add(directory, report)
    report.note(miss(1))
    pid = os.fork()
    if not pid:
        counts = Counters(misses=1)
        report.note(miss(2))
        report.report()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert read_misses(layout) == [miss(2)]

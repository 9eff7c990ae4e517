# SPDX-License-Identifier: Apache-2.0
"""Costs, counted in system calls: unlike times they are the same on every machine and under any load."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import RUN_HEAD, read_run
from lockcache.filestream.disk.layout import entry_name
from tests.crash.strace import trace

pytestmark = pytest.mark.unmeasured

# The marks are calls that nobody else makes.
MARKED = """
import os, sys
from lockcache import FileStreamProgramCache
path = sys.argv[1]
cache = FileStreamProgramCache(path)
cache.get(b"0"); cache.get(b"0"); cache.get(b"none"); cache.get(b"none"); cache.get(b"0")
cache[b"0"] = b"x" * 100  # what is looked up once has been looked up
def mark(): os.access("/the mark", os.F_OK)
"""


def _calls(program: str, path: Path, log: Path) -> list[list[str]]:
    """The names of the calls between the marks of ``program``."""
    spans: list[list[str]] = [[]]
    for line in trace(MARKED + program, path, log=log):
        if '"/the mark"' in line:
            spans.append([])
        else:
            spans[-1].append(re.split(r"\W", line, maxsplit=1)[0])
    # What the interpreter does for itself, whenever it likes.
    return [[call for call in span if call not in ("brk", "mmap", "munmap", "madvise")] for span in spans[1:-1]]


def _filled(path: Path, entries: int) -> FileStreamProgramCache:
    """A cache that holds exactly its cap. Filled as cuda.core would have: a fifth of the time of as many puts."""
    cache = FileStreamProgramCache(path, max_size_bytes=entries * 100)
    for number in range(entries):
        file = Path(cache._directory.layout.entry(entry_name(b"%d" % number)))
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_bytes(b"x" * 100)
    cache.recount()
    assert (cache.stats().entries, cache.stats().bytes) == (entries, entries * 100)
    cache[b"0"] = b"x" * 100  # with a record
    return cache


@pytest.fixture(scope="module", params=[1000, 5000])
def full(request: pytest.FixtureRequest) -> Iterator[tuple[Path, int]]:
    """A capped cache without room for another entry, and how many entries it has. In memory, if there is a place."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        path = Path(folder) / "cache"
        _filled(path, request.param).close()
        yield path, request.param


def test_a_hit_of_a_sealed_process_makes_the_same_calls(cache_path: Path, tmp_path: Path) -> None:
    _filled(cache_path, 10).close()
    program = """
import lockcache
cache.get_or_compute(b"0", None); mark(); cache.get(b"0"); mark(); cache.get_or_compute(b"0", None); mark()
lockcache.seal("error", misses=path + ".missed")
mark(); cache.get(b"0"); mark(); cache.get_or_compute(b"0", None); mark()
"""
    before, computed_before, _, after, computed_after = _calls(program, cache_path, tmp_path / "log")
    assert (after, computed_after) == (before, computed_before)
    assert len(after) == 5


def test_a_hit_is_five_system_calls_and_no_lock(cache_path: Path, tmp_path: Path) -> None:
    _filled(cache_path, 10).close()
    [hit] = _calls('cache.get(b"0"); mark(); cache.get(b"0"); mark()', cache_path, tmp_path / "log")
    assert hit[:-1] == ["openat", "fgetxattr", "read", "utimensat"]
    assert hit[-1] in ("close", "close_range")  # by how old the kernel and the C library are


def test_a_hit_of_a_cache_that_only_reads_states_no_use(cache_path: Path, tmp_path: Path) -> None:
    _filled(cache_path, 10).close()
    program = 'cache = FileStreamProgramCache(path, read_only=True); cache.get(b"0"); mark(); cache.get(b"0"); mark()'
    [hit] = _calls(program, cache_path, tmp_path / "log")
    assert "utimensat" not in hit
    assert set(hit) <= {"openat", "fgetxattr", "flistxattr", "fstat", "newfstatat", "read", "close", "close_range"}


def test_a_lookup_whose_key_is_recorded_makes_no_call_more(
    cache_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(cache_path, 10).close()
    program = 'cache.get(b"none"); cache.get(b"0"); mark(); cache.get(b"0"); mark(); cache.get(b"none"); mark()'
    hit, miss = _calls(program, cache_path, tmp_path / "log")
    monkeypatch.setenv("LOCKCACHE_MANIFEST", str(tmp_path / "job.manifest"))
    assert _calls(program, cache_path, tmp_path / "log")[0] == hit
    assert len(_calls(program, cache_path, tmp_path / "log")[1]) == len(miss) == 1
    assert len((tmp_path / "job.manifest").read_text().splitlines()) == 3


def test_a_hit_in_a_process_of_lockcache_run_makes_no_call_more(
    cache_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for a program that this process finds, nor for one that it knows."""
    _filled(cache_path, 10).close()
    program = 'mark(); cache.get(b"1"); mark(); cache.get(b"1"); mark(); cache.get(b"none"); mark()'
    without = _calls(program, cache_path, tmp_path / "log")
    record = tmp_path / "record"
    record.write_bytes(RUN_HEAD)
    monkeypatch.setenv("LOCKCACHE_RUN", str(record))
    assert _calls(program, cache_path, tmp_path / "log") == without
    assert [(part.found, part.compiled) for part in read_run(None, str(record))] == [(1, 1)]


def test_the_parts_of_its_key_cost_a_hit_no_system_call_and_a_put_two(cache_path: Path, tmp_path: Path) -> None:
    _filled(cache_path, 10).close()
    program = """
from lockcache.explain import state
state(b"stated", {"option arch": "sm_90", **{f"define M{n}": n for n in range(30)}}, "saxpy")
for key in (b"stated", b"plain"):
    cache[key] = b"first"  # makes the shard
    cache.get(key)
    mark(); cache.get(key); mark(); del cache[key]; mark()
    cache.put_entry(key, Entry(b"code", {"kind": "cubin"})); mark()
"""
    spans = _calls("from lockcache import Entry" + program, cache_path, tmp_path / "log")
    hit, _, put, _, plain_hit, _, plain_put = spans
    assert hit == plain_hit
    assert len(hit) == 5
    # The look is for an entry that was there and could not be served, which lockcache why tells from one that had gone.
    assert Counter(put) - Counter(plain_put) == Counter({"fsetxattr": 1, "faccessat2": 1})
    assert Counter(plain_put) - Counter(put) == Counter()


def test_a_miss_is_one_system_call_that_fails(cache_path: Path, tmp_path: Path) -> None:
    _filled(cache_path, 10).close()
    program = (
        'cache.get(b"none"); cache.get(b"nil"); cache.get(b"0"); mark(); '  # each shard is looked at once
        'cache.get(b"none"); mark(); cache.get(b"none"); mark(); cache.get(b"nil"); mark()'
    )
    misses = _calls(program, cache_path, tmp_path / "log")
    assert [len(miss) for miss in misses] == [1, 1, 1]
    assert {call for miss in misses for call in miss} <= {"openat", "access", "faccessat", "faccessat2"}


# Fixed, not relative to each other, so that each run judges itself: 22 for a put (with its policy, its two critical
# sections, its record), and the share of one sample (3 calls an entry, a sixteenth of which goes) and of a removal.
MOST_CALLS_PER_PUT = 130
PUTS = 600


def test_a_put_into_a_full_cache_costs_as_many_system_calls_at_1000_entries_as_at_5000(
    full: tuple[Path, int], tmp_path: Path
) -> None:
    path, entries = full
    program = f'mark()\nfor n in range({PUTS}): cache[b"new %d" % n] = b"x" * 100\nmark()'
    [puts] = _calls(program, path, tmp_path / "log")
    counts = Counter(puts)
    assert len(puts) / PUTS < MOST_CALLS_PER_PUT
    assert counts["unlink"] >= PUTS - entries // 16, "it was full"
    assert FileStreamProgramCache(path).stats().bytes <= entries * 100


def test_opening_a_capped_cache_walks_nothing_however_full_it_is(full: tuple[Path, int], tmp_path: Path) -> None:
    path, _ = full
    program = "mark(); again = FileStreamProgramCache(path, max_size_bytes=cache.max_size_bytes); mark()"
    [opening] = _calls(program, path, tmp_path / "log")
    # In memory, as on a network file system, the table of mounts is read too.
    assert len(opening) < 90, "the format and the policy are read, and what the dead left is looked for"
    assert opening.count("getdents64") <= 4, "of tmp and of leases, until the end of each"

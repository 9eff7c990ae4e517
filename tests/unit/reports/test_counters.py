# SPDX-License-Identifier: Apache-2.0
"""Counters that programs add to: what the sector of the state page holds, and what may be found in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import read_counters, read_since
from lockcache.filestream.accounting.head import COUNTERS_AT, COUNTERS_END
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from lockcache.reports import Counters, CountersReport
from tests.unit.material import open_directory


class Program:
    """Counters of an object, set by hand."""

    def __init__(self, directory: CacheDirectory) -> None:
        self.now = Counters()
        self.layout = directory.layout
        self.report = CountersReport(lambda: self.now, directory.counting)

    def count(self, **counts: int) -> None:
        self.now = self.now._replace(**counts)
        self.report.report()


def put_sector(layout: Layout, sector: bytes) -> None:
    """Put other bytes into the place of the counters."""
    with open(layout.state, "rb+") as page:
        page.seek(COUNTERS_AT)
        page.write(sector.ljust(COUNTERS_END - COUNTERS_AT, b"\0"))


def sector_of(layout: Layout) -> bytes:
    return Path(layout.state).read_bytes()[COUNTERS_AT:COUNTERS_END]


@pytest.fixture
def program(directory: CacheDirectory) -> Program:
    return Program(directory)


@pytest.fixture
def another(cache_path: Path) -> Iterator[Program]:
    """Another process's, as far as locks know."""
    directory = open_directory(cache_path)
    yield Program(directory)
    directory.close()


def test_only_what_is_new_is_added(program: Program, another: Program) -> None:
    assert (read_counters(program.layout), read_counters(program.layout).hit_ratio) == (Counters(), None)
    program.count(hits=3, misses=1)
    program.count(hits=3, misses=1)
    another.count(hits=10, dropped_writes=2)
    program.count(hits=5, misses=1)
    found = read_counters(program.layout)
    assert (found.hits, found.misses, found.dropped_writes, found.reports) == (15, 1, 2, 3)
    assert abs(time.time_ns() - found.last_report_ns) < 60 * 10**9


def test_counters_that_somebody_holds_are_not_waited_for_and_the_next_report_has_it_all(
    program: Program, cache_path: Path
) -> None:
    program.count(hits=1)
    holder = open_directory(cache_path)
    with holder.counting(0.0):
        program.count(hits=2)
        assert program.report.failures == 1
    holder.close()
    program.count(hits=4)
    assert read_counters(program.layout).hits == 4


@pytest.mark.parametrize("left", [b"", b"\xff" * 512, b"\1" * 100], ids=["zeros", "ones", "half"])
def test_a_damaged_sector_counts_for_nothing_and_is_begun_again(program: Program, left: bytes) -> None:
    program.count(hits=7)
    put_sector(program.layout, left)
    assert read_counters(program.layout) == Counters()
    assert read_since(program.layout) is None
    program.count(hits=9)
    assert read_counters(program.layout).hits == 2


def test_numbers_of_a_newer_version_stay_as_they_are(program: Program) -> None:
    from lockcache.filestream.accounting.counters import CountersCodec

    newer = CountersCodec(lambda *numbers: numbers, (*Counters._fields, *"abcd"))
    put_sector(program.layout, newer.add(bytes(512), (1,) * 16))
    program.count(hits=2)
    assert newer.read(sector_of(program.layout))[12:] == (1,) * 4
    assert read_counters(program.layout).hits == 3


def test_a_page_that_is_made_again_keeps_the_counters(program: Program, cache_path: Path) -> None:
    program.count(hits=2)
    with open(program.layout.state, "rb+") as page:
        page.write(b"damaged")
    open_directory(cache_path).close()
    assert read_counters(program.layout).hits == 2
    program.count(hits=3)
    assert read_counters(program.layout).hits == 3, "added to the page that is there now"


def test_counts_that_would_overflow_stay_at_the_largest(program: Program, another: Program) -> None:
    program.count(hits=2**63 - 1)
    another.count(hits=2**63 - 1)
    assert read_counters(program.layout).hits == 2**63 - 1


def test_a_deleted_directory_is_not_made_again_by_closing(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    assert cache.get(b"missing") is None
    for folder, _, files in os.walk(cache_path, topdown=False):
        for file in files:
            os.unlink(f"{folder}/{file}")
        os.rmdir(folder)
    cache.close()
    assert not cache_path.exists()


def test_stats_and_close_report_all_counters(cache_path: Path) -> None:
    layout = Layout(str(cache_path))
    with FileStreamProgramCache(cache_path, max_size_bytes=20_000) as cache:
        for number in range(8):
            cache[b"%d" % number] = bytes(5000)
        cache[b"too large"] = bytes(50_000)
        assert cache.get(b"7") is not None
        assert cache.get(b"missing") is None
        own = cache.stats()
        found = read_counters(layout)
        assert own.puts == found.puts == 8
        assert own.evictions == found.evictions > 0
        assert (found.hits, found.misses, found.dropped_writes) == (1, 1, 1)
        assert cache.get(b"7") is not None
    assert read_counters(layout).hits == 2


def test_a_put_reports_once_ten_seconds_have_passed(cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        layout = Layout(cache.path)
        cache[b"a"] = b"code"
        assert read_counters(layout).reports == 0
        now_ns = time.time_ns() + 11 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: now_ns)
        cache[b"b"] = b"code"
        cache[b"c"] = b"code"
        assert read_counters(layout).reports == 1


def test_a_hit_makes_no_report_however_long_ago_the_last_one_was(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"a"] = b"code"
        now_ns = time.time_ns() + 10**12
        monkeypatch.setattr(time, "time_ns", lambda: now_ns)
        assert cache[b"a"] == b"code"
        assert read_counters(Layout(cache.path)).reports == 0


def test_after_a_reset_people_see_what_came_since_and_the_page_goes_on(
    directory: CacheDirectory, program: Program
) -> None:
    program.count(hits=3, misses=1, saved_ns=500)
    assert read_since(program.layout) is None
    with directory.counting(0.0) as counters:
        counters.reset()
    program.count(hits=4, misses=3, saved_ns=700)
    now = read_counters(program.layout)
    assert (now.hits, now.misses, now.saved_ns, now.reports) == (4, 3, 700, 2)
    since = read_since(program.layout)
    assert since is not None
    assert (since.hits, since.misses, since.saved_ns, since.reports) == (1, 2, 200, 1)
    assert abs(time.time_ns() - since.last_report_ns) < 60 * 10**9


def test_a_miss_that_was_reported_and_became_a_hit_is_taken_off_the_next_ones(program: Program) -> None:
    program.count(misses=1)
    program.count(misses=0, hits=1)
    found = read_counters(program.layout)
    assert (found.hits, found.misses) == (1, 1), "no metric may fall"
    program.count(misses=1)
    assert read_counters(program.layout).misses == 1
    program.count(misses=2)
    assert read_counters(program.layout).misses == 2

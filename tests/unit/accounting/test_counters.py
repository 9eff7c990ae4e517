"""The page that programs add their counters to: what it holds, and what may be found in its place."""

from __future__ import annotations

import fcntl
import gc
import os
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.counters import (
    Counters,
    CountersReport,
    read_counters,
    read_since,
    reset_counters,
)
from lockcache.filestream.disk.layout import Layout


class Program:
    """Counters of an object, set by hand."""

    def __init__(self, layout: Layout) -> None:
        self.now = Counters()
        self.report = CountersReport(layout, lambda: self.now)

    def count(self, **counts: int) -> None:
        self.now = self.now._replace(**counts)
        self.report.report()


def test_nobody_reported_yet_is_zeros_and_no_hit_ratio(layout: Layout) -> None:
    assert read_counters(layout) == Counters()
    assert read_counters(layout).hit_ratio is None
    assert not os.path.exists(layout.counters)


def test_only_what_is_new_is_added(layout: Layout) -> None:
    first, second = Program(layout), Program(layout)
    first.count(hits=3, misses=1)
    first.count(hits=3, misses=1)
    second.count(hits=10, dropped_writes=2)
    first.count(hits=5, misses=1)
    found = read_counters(layout)
    assert (found.hits, found.misses, found.dropped_writes, found.reports) == (15, 1, 2, 3)
    assert abs(time.time_ns() - found.last_report_ns) < 60 * 10**9
    assert os.stat(layout.counters).st_size == 128
    assert os.stat(layout.counters).st_mode & 0o777 == 0o600


def test_a_page_that_somebody_holds_is_not_waited_for_and_the_next_report_has_it_all(layout: Layout) -> None:
    program = Program(layout)
    program.count(hits=1)
    with open(layout.counters, "rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        program.count(hits=2)
        assert program.report.failures == 1
    program.count(hits=4)
    assert read_counters(layout).hits == 4


@pytest.mark.parametrize("left", [b"", bytes(128), bytes(5)], ids=["empty", "hollow", "short"])
def test_what_a_power_cut_leaves_of_a_page_is_a_new_one(layout: Layout, left: bytes) -> None:
    Path(layout.counters).write_bytes(left)
    Program(layout).count(hits=2)
    assert read_counters(layout).hits == 2


def test_something_else_in_its_place_is_removed_and_the_next_report_counts(layout: Layout) -> None:
    Path(layout.counters).write_bytes(b"\xff" * 128)
    assert read_counters(layout) == Counters()
    program = Program(layout)
    program.count(hits=2)
    program.count(hits=3)
    assert read_counters(layout).hits == 3


def test_a_page_of_a_newer_version_is_left_alone(layout: Layout) -> None:
    newer = b"LCcount\x02" + bytes(200)
    Path(layout.counters).write_bytes(newer)
    Program(layout).count(hits=2)
    assert Path(layout.counters).read_bytes() == newer
    assert read_counters(layout) == Counters()


def test_nothing_is_written_into_a_file_that_has_another_name(layout: Layout, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"")
    os.link(theirs, layout.counters)
    program = Program(layout)
    program.count(hits=2)
    assert theirs.read_bytes() == b""
    program.count(hits=3)
    assert (theirs.read_bytes(), read_counters(layout).hits) == (b"", 3)


def test_counts_that_would_overflow_stay_at_the_largest(layout: Layout) -> None:
    Program(layout).count(hits=2**63 - 1)
    Program(layout).count(hits=2**63 - 1)
    assert read_counters(layout).hits == 2**63 - 1


def test_a_deleted_directory_is_not_made_again_by_closing(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    assert cache.get(b"missing") is None
    for folder, _, files in os.walk(cache_path, topdown=False):
        for file in files:
            os.unlink(f"{folder}/{file}")
        os.rmdir(folder)
    cache.close()
    assert not cache_path.exists()


def test_an_object_that_is_collected_reports(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    assert cache.get(b"missing") is None
    layout = Layout(cache.path)
    assert read_counters(layout).misses == 0
    del cache
    gc.collect()
    assert read_counters(layout).misses == 1


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


def test_after_a_reset_people_see_what_came_since_and_the_page_goes_on(layout: Layout) -> None:
    program = Program(layout)
    program.count(hits=3, misses=1, saved_ns=500)
    assert read_since(layout, read_counters(layout)) is None
    reset_counters(layout)
    program.count(hits=4, misses=3, saved_ns=700)
    now = read_counters(layout)
    assert (now.hits, now.misses, now.saved_ns, now.reports) == (4, 3, 700, 2)
    since = read_since(layout, now)
    assert since is not None
    assert (since.hits, since.misses, since.saved_ns, since.reports) == (1, 2, 200, 1)
    assert abs(time.time_ns() - since.last_report_ns) < 60 * 10**9
    assert os.stat(layout.counters_base).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [b"", b"\xff" * 128, bytes(128), b"LCcount\x01"])
def test_a_base_that_is_something_else_counts_for_nothing(layout: Layout, left: bytes) -> None:
    Program(layout).count(hits=3)
    Path(layout.counters_base).write_bytes(left)
    assert read_since(layout, read_counters(layout)) is None


def test_a_page_that_was_made_again_since_the_reset_counts_whole(layout: Layout) -> None:
    Program(layout).count(hits=3)
    reset_counters(layout)
    os.unlink(layout.counters)
    Program(layout).count(hits=2)
    assert read_since(layout, read_counters(layout)) is None


def test_a_page_of_before_there_was_a_sum_of_what_is_saved_goes_on(layout: Layout) -> None:
    program = Program(layout)
    program.count(hits=3)
    page = Path(layout.counters).read_bytes()
    assert page[80:] == bytes(48), "what an older version writes there"
    program.count(hits=4, saved_ns=9)
    assert (read_counters(layout).hits, read_counters(layout).saved_ns) == (4, 9)


def test_a_page_of_before_there_were_waits_goes_on(layout: Layout) -> None:
    program = Program(layout)
    program.count(hits=3, saved_ns=9)
    assert Path(layout.counters).read_bytes()[88:] == bytes(40), "what an older version writes there"
    program.count(hits=4, waits=1)
    found = read_counters(layout)
    assert (found.hits, found.saved_ns, found.waits) == (4, 9, 1)


def test_a_miss_that_was_reported_and_became_a_hit_is_taken_off_the_next_ones(layout: Layout) -> None:
    program = Program(layout)
    program.count(misses=1)
    program.count(misses=0, hits=1)
    found = read_counters(layout)
    assert (found.hits, found.misses) == (1, 1), "no metric may fall"
    program.count(misses=1)
    assert read_counters(layout).misses == 1
    program.count(misses=2)
    assert read_counters(layout).misses == 2


def test_on_a_network_file_system_a_report_does_not_ask_the_server_about_a_page_that_nobody_else_can_replace(
    cache_path, monkeypatch
):
    FileStreamProgramCache(cache_path).close()
    layout, looked_at, fstat = Layout(str(cache_path)), [], os.fstat

    def note(fd):
        looked_at.append(os.readlink(f"/proc/self/fd/{fd}"))
        return fstat(fd)

    for kind, is_looked_at in (("lustre", False), ("", True)):
        monkeypatch.setattr("lockcache.filestream.disk.layout.network_kind", lambda root, kind=kind: kind)
        cache = FileStreamProgramCache(cache_path)
        cache.get("k")
        with monkeypatch.context() as noting:
            noting.setattr(os, "fstat", note)
            cache.close()
        assert (layout.counters in looked_at) == is_looked_at
    assert read_counters(layout).misses == 2

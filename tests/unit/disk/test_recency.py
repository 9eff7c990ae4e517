# SPDX-License-Identifier: Apache-2.0
"""Last use: what a hit states, and what an evictor reads."""

from __future__ import annotations

import os
import time

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import FOLDER, opened, recency
from lockcache.filestream.disk.recency import ReadRecency, Recency, last_use_ns, restate
from tests.unit.material import entry_path, set_last_use

DAY_NS = 86400 * 10**9


@pytest.fixture
def cache(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"code"
        yield cache


def last_use(cache, key=b"k"):
    return last_use_ns(os.stat(entry_path(cache.path, key)))


def set_clock_back(monkeypatch) -> int:
    """Set this process's clock back by a day, and stop it. Returns its time."""
    now_ns = time.time_ns() - DAY_NS
    monkeypatch.setattr(recency, "_time_ns", lambda: now_ns)
    monkeypatch.setattr(time, "time", lambda: now_ns / 1e9)
    return now_ns


@pytest.mark.parametrize("times, last", [((5, 9), 9), ((9, 5), 9), ((7, 7), 7)])
def test_the_last_use_is_the_later_of_both_times(tmp_path, times, last):
    file = tmp_path / "f"
    file.touch()
    os.utime(file, ns=times)
    assert last_use_ns(file.stat()) == last


@pytest.mark.parametrize("read", [lambda c: c["k"], lambda c: c.get("k"), lambda c: c.get_entry("k")])
def test_a_hit_states_that_the_entry_was_used_now(cache, read):
    set_last_use(entry_path(cache.path), 1000)
    read(cache)
    assert last_use(cache) > 10**18


def test_a_miss_a_write_elsewhere_and_looking_around_state_nothing(cache):
    set_last_use(entry_path(cache.path), 1000)
    cache.get("other")
    cache["other"] = b"x"
    len(cache), cache.stats(), cache.recount()
    assert last_use(cache) == 1000 * 10**9


def test_a_read_that_finds_damage_states_nothing(cache):
    with open(entry_path(cache.path), "r+b") as file:
        file.write(b"X")
    set_last_use(entry_path(cache.path), 1000)
    assert cache.get("k") is None
    assert last_use(cache) == 1000 * 10**9


def test_uses_within_one_tick_of_the_kernels_clock_are_in_order(cache):
    for key in "abcdefgh":
        cache[key] = b"x"
    for key in "hgfedcba":
        cache[key]
    uses = [last_use(cache, key.encode()) for key in "hgfedcba"]
    assert sorted(set(uses)) == uses


def test_a_write_is_a_use(cache):
    set_last_use(entry_path(cache.path), 1000)
    cache["k"] = b"again"
    assert last_use(cache) > 10**18


def test_where_times_may_not_be_set_now_is_said_instead(tmp_path, monkeypatch):
    # A fake for a group member who may write the file and does not own it: root, as whom tests run, may do all.
    utime = os.utime
    calls = []

    def refuse_explicit(fd, *arguments):
        calls.append(arguments)
        if arguments:
            raise PermissionError(1, "Operation not permitted")
        return utime(fd)

    monkeypatch.setattr("lockcache.filestream.disk.recency._utime", refuse_explicit)
    file = tmp_path / "f"
    file.touch()
    set_last_use(file, 1000)
    recency = Recency(str(tmp_path))
    with open(file) as opened:
        recency.touch(opened.fileno())
        recency.touch(opened.fileno())
    assert last_use_ns(file.stat()) > 10**18
    assert [bool(arguments) for arguments in calls] == [True, False, False]  # learned from the first refusal
    assert recency.failures == 0


def test_a_use_that_cannot_be_stated_is_counted_and_not_raised(tmp_path, monkeypatch):
    # A fake for a read-only mount; tests/processes has the real one.
    def refuse(fd, *arguments, **keywords):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("lockcache.filestream.disk.recency._utime", refuse)
    recency = Recency(str(tmp_path))
    recency.touch(0)
    recency.touch(0)
    assert recency.failures == 2


def test_on_a_network_file_system_a_use_is_stated_once_a_minute(tmp_path, monkeypatch):
    # A fake for the kind of file system; what is stated is stated on a real file.
    monkeypatch.setattr("lockcache.filestream.disk.recency.is_network", lambda root: True)
    file = tmp_path / "f"
    file.touch()
    recency = Recency(str(tmp_path))
    with open(file) as opened:
        fd = opened.fileno()
        set_last_use(file, 1000)
        recency.touch(fd)
        first = last_use_ns(file.stat())
        assert first > 10**18
        recency.touch(fd)
        assert last_use_ns(file.stat()) == first
        os.utime(file, ns=(first - 61 * 10**9,) * 2)
        recency.touch(fd)
        assert last_use_ns(file.stat()) >= first
    assert not recency.is_exact, "a reader would state uses itself, by this host's clock"


def test_a_descriptor_that_is_no_more_is_counted_and_not_raised(tmp_path):
    for is_network in (False, True):
        recency = Recency(str(tmp_path))
        recency.touch = recency._touch_seldom if is_network else recency._touch_exactly
        recency.touch(10**6)
        assert recency.failures == 1


def test_for_files_whose_mtimes_tell_an_order_only_the_atime_is_set(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")
    os.utime(path, ns=(5, 7))
    fd = os.open(path, os.O_RDONLY)
    try:
        recency = ReadRecency(str(tmp_path))
        for _ in range(2):
            recency.touch(fd)
        assert path.stat().st_mtime_ns == 7
        assert path.stat().st_atime_ns > 10**18
        assert recency.failures == 0
    finally:
        os.close(fd)
    recency.touch(fd)
    assert recency.failures == 1


def test_a_use_that_is_to_come_counts_as_of_when_it_was_stated(tmp_path):
    file = tmp_path / "f"
    file.touch()
    to_come_ns = time.time_ns() + 400 * DAY_NS
    os.utime(file, ns=(0, to_come_ns))
    assert last_use_ns(file.stat()) == file.stat().st_ctime_ns
    assert time.time_ns() - last_use_ns(file.stat()) < DAY_NS


@pytest.mark.parametrize("keeps_order", [False, True])
def test_a_use_by_a_clock_that_was_set_back_since_is_dated_to_now(tmp_path, monkeypatch, keeps_order):
    file = tmp_path / "f"
    file.touch()
    written_ns = file.stat().st_mtime_ns
    set_back_ns = set_clock_back(monkeypatch)
    with opened(str(tmp_path), FOLDER) as fd:
        found = restate(str(tmp_path / "tmp"), fd, "f", file.stat(), keeps_order=keeps_order)
    assert found.st_atime_ns == set_back_ns
    assert found.st_mtime_ns == (written_ns if keeps_order else set_back_ns)


def test_a_file_server_whose_clock_is_ahead_is_right(tmp_path, monkeypatch):
    file, tmp = tmp_path / "f", tmp_path / "tmp"
    file.touch()
    tmp.mkdir()  # dated by the same clock
    before = file.stat()
    set_clock_back(monkeypatch)
    with opened(str(tmp_path), FOLDER) as fd:
        assert restate(str(tmp), fd, "f", before) == before == file.stat()


@pytest.mark.parametrize("other_name", ["symlink", "link"])
def test_a_file_that_may_be_somebody_elses_is_dated_to_nothing(tmp_path, monkeypatch, other_name):
    mine, other = tmp_path / "f", tmp_path / "elsewhere"
    other.touch()
    before = other.stat().st_atime_ns
    mine.symlink_to(other) if other_name == "symlink" else mine.hardlink_to(other)
    set_clock_back(monkeypatch)
    with opened(str(tmp_path), FOLDER) as fd:
        restate(str(tmp_path / "tmp"), fd, "f", mine.lstat())
    assert other.stat().st_atime_ns == before

"""Last use: what a hit states, and what an evictor reads."""

from __future__ import annotations

import os

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.recency import ReadRecency, Recency, last_use_ns
from tests.unit.material import entry_path, set_last_use


@pytest.fixture
def cache(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"code"
        yield cache


def last_use(cache, key=b"k"):
    return last_use_ns(os.stat(entry_path(cache.path, key)))


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

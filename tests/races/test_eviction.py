# SPDX-License-Identifier: Apache-2.0
"""Evictors next to readers and writers, and writers that reserve at the same moment."""

from __future__ import annotations

import os
import threading

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.entry.staging import StagedEntry
from tests.races.steps import alongside, stop_before
from tests.unit.material import entry_path, keys_in_shard, on_disk, set_last_use, shard_of

SIZE = 100


@pytest.fixture
def cap(record_files):
    return 3 * (SIZE + 44 * record_files)


def fill(cache):
    """Three entries that fill the cap; "a" was used first."""
    for number, key in enumerate("abc"):
        cache[key] = key.encode() * SIZE
        set_last_use(entry_path(cache.path, key.encode()), 1000 + number)


def stop_evictor_before_removing(monkeypatch, key="a"):
    """The evictor has chosen its victim and is about to lock the victim's shard."""
    path = f"/locks/{shard_of(key.encode()):02x}"
    return stop_before(monkeypatch, ProcessLock, "try_hold", lambda lock: lock.path.endswith(path))


def test_a_victim_that_was_read_meanwhile_survives(make, cap, monkeypatch):
    one, other = make(max_size_bytes=cap), make()
    fill(one)
    stop = stop_evictor_before_removing(monkeypatch)
    with alongside(one.__setitem__, "new", b"n" * SIZE):
        stop.wait_until_reached()
        assert other["a"] == b"a" * SIZE
        stop.go_on()
    assert one["a"] == b"a" * SIZE
    assert one.get("b") is None  # the next oldest went instead
    assert one["new"] == b"n" * SIZE


def test_two_evictors_of_one_victim_give_it_back_once(make, cap, monkeypatch):
    one, other = make(max_size_bytes=cap), make()
    fill(one)
    stop = stop_evictor_before_removing(monkeypatch)
    with alongside(one.__setitem__, "new", b"n" * SIZE):
        stop.wait_until_reached()
        other["newer"] = b"m" * SIZE  # evicts "a", and what else it needs: two reservations stand
        stop.go_on()
    assert one.get("a") is None
    assert one.stats().evictions + other.stats().evictions == 5 - len(one)
    assert on_disk(one.path).bytes <= cap


def test_an_opening_with_a_smaller_cap_waits_a_moment_for_a_shard_that_is_busy(make, cap, monkeypatch):
    """It passed over the shards with victims, and left the directory over its cap until the next write."""
    one = make(max_size_bytes=cap)
    fill(one)
    smaller = cap * 2 // 3
    shards = {shard_of(key.encode()) for key in "abc"}
    directory = CacheDirectory(str(one.path), 1.0)
    holds = [directory.hold_shard(shard)[0] for shard in shards]
    paused = []

    def let_go(seconds):
        paused.append(seconds)
        while holds:
            holds.pop().release()

    monkeypatch.setattr("lockcache.filestream.admission.time.sleep", let_go)
    make(max_size_bytes=smaller)
    directory.close()
    assert len(paused) == 1
    assert on_disk(one.path).bytes <= smaller


def test_of_two_writers_that_reserve_together_and_overshoot_at_least_one_sees_it(make, cap, monkeypatch):
    """Both reservations stand before either looks at the sum: looking first, both would have gone on."""
    caches = [make(max_size_bytes=cap), make()]
    size = cap * 2 // 3
    both_reserved, first = threading.Barrier(2), threading.local()
    reserve, write, peaks = StagedEntry.reserve, StagedEntry.write, []

    def meet(staged):
        reserve(staged)
        if not getattr(first, "is_over", False):
            first.is_over = True
            both_reserved.wait(60)

    def look(staged, *arguments, **keywords):
        write(staged, *arguments, **keywords)
        peaks.append(bytes_under(caches[0].path))

    monkeypatch.setattr(StagedEntry, "reserve", meet)
    monkeypatch.setattr(StagedEntry, "write", look)
    with alongside(caches[0].__setitem__, "x", b"x" * (size - 44)):
        caches[1]["y"] = b"y" * (size - 44)
    assert max(peaks) <= cap
    assert [cache.stats().dropped_writes for cache in caches] == [0, 0]
    assert [cache.stats().puts for cache in caches] == [1, 1]
    assert len(caches[0]) == 1


def bytes_under(path):
    """Bytes of entries, records and staged files, as they are on disk at this instant."""
    total = 0
    for folder in ("entries", "tmp", "lockcache/records"):
        for parent, _, names in os.walk(os.path.join(path, folder)):
            for name in names:
                try:
                    total += os.lstat(os.path.join(parent, name)).st_size
                except FileNotFoundError:
                    pass
    return total


@pytest.mark.parametrize("name, folder", [("rename", "entries"), ("open", "tmp")])
def test_a_recount_waits_for_the_step_between_a_file_and_its_accounting(make, monkeypatch, name, folder):
    one, other = make(), make()
    one["k"] = b"older"
    real, walking = os.scandir, threading.Event()

    def scandir(path):
        walking.set()
        return real(path)

    stop = stop_before(monkeypatch, os, name, lambda *arguments: any(f"/{folder}/" in str(a) for a in arguments))
    with alongside(one.__setitem__, "k", b"y" * SIZE):
        stop.wait_until_reached()
        monkeypatch.setattr(os, "scandir", scandir)
        with alongside(other.recount):
            stop.go_on()
    assert walking.is_set()
    assert other.recount() == []


def test_a_writer_whose_staged_file_was_reaped_all_the_same_does_not_give_back_twice(make, monkeypatch):
    """A reaper that takes a living owner for dead (a stepped clock) must not end in a directory beyond its cap."""
    one, other = make(), make()
    neighbour = keys_in_shard(shard_of(b"k"), 1)[0]  # whose bytes would be missing from the sum
    one[neighbour] = b"x" * SIZE
    stop = stop_before(monkeypatch, StagedEntry, "publish")
    with alongside(one.__setitem__, "k", b"y" * SIZE):
        stop.wait_until_reached()
        with monkeypatch.context() as patch:
            patch.setattr("lockcache.filestream.disk.owners.is_alive", lambda owner: False)
            other.recount()
        assert os.listdir(Layout(one.path).tmp) == []
        stop.go_on()
    assert one.get("k") in (None, b"y" * SIZE)


def test_an_eviction_for_an_open_cache_with_a_new_cap_passes_over_what_is_being_written(make, cap, monkeypatch):
    one, other = make(), make()
    fill(one)
    stop = stop_before(monkeypatch, StagedEntry, "publish")
    with alongside(one.__setitem__, "k", b"y" * SIZE):
        stop.wait_until_reached()
        with FileStreamProgramCache(other.path, max_size_bytes=SIZE * 2):
            assert other.get("a") is None
        stop.go_on()
    assert one["k"] == b"y" * SIZE
    assert os.path.exists(entry_path(one.path, b"k")), entry_name(b"k")

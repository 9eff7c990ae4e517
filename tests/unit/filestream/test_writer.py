# SPDX-License-Identifier: Apache-2.0
"""One value from start to end: what is tried again, what is dropped, and what a dropped write leaves."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream import admission
from lockcache.filestream.accounting import StatePage
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.filestream.policy import Policy
from tests.state_pages import damage, set_policy
from tests.unit.material import keys_in_shard, on_disk, shard_of


@pytest.fixture(params=[False, True], ids=["attribute", "record-files"])
def cache(cache_path, request):
    with FileStreamProgramCache(cache_path, lock_timeout_seconds=0.2, record_files=request.param) as cache:
        yield cache


def fail(monkeypatch, name, code, *, times=1000, when=lambda *arguments: True):
    """Has ``os.name`` fail so many times (a fake for what no file system here does when asked to)."""
    real, failures = getattr(os, name), []

    def maybe(*arguments, **keywords):
        if len(failures) < times and when(*arguments):
            failures.append(arguments)
            raise OSError(code, os.strerror(code))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, maybe)
    return failures


def expect_dropped(cache, key="k"):
    """The write was given up: counted, nothing older is served, nothing is left behind."""
    assert cache.get(key) is None
    stats = cache.stats()
    assert stats.dropped_writes == 1
    assert os.listdir(Layout(cache.path).tmp) == []
    cache[key] = b"works again"
    assert cache[key] == b"works again"


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOTCONN, errno.ESTALE, errno.ENFILE])
@pytest.mark.parametrize("call", ["write", "rename"])
def test_what_a_caller_cannot_help_drops_the_write_and_the_older_value(cache, monkeypatch, call, code):
    cache["k"] = b"older"
    fail(monkeypatch, call, code)
    cache["k"] = b"newer"
    monkeypatch.undo()
    expect_dropped(cache)
    assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache.path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_write_that_is_denied_after_opening_is_dropped(cache, monkeypatch, code):
    fail(monkeypatch, "rename", code)
    cache["k"] = b"1"
    monkeypatch.undo()
    assert (cache.get("k"), cache.stats().dropped_writes) == (None, 1)
    assert os.listdir(Layout(cache.path).tmp) == []
    assert (cache.stats().bytes, cache.stats().entries) == (0, 0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_evicts_and_tries_once_more(cache, monkeypatch, code):
    cache.update({str(number): b"x" * 100 for number in range(5)})
    failures = fail(monkeypatch, "write", code, times=1)
    cache["k"] = b"y" * 150
    assert cache["k"] == b"y" * 150
    assert len(failures) == 1
    stats = cache.stats()
    assert (stats.dropped_writes, stats.evictions >= 1) == (0, True)
    assert cache.get("0") is None  # the least recently used
    assert cache.get("4") == b"x" * 100
    assert (stats.bytes, stats.entries) == on_disk(cache.path)


def test_a_disk_that_stays_full_is_tried_twice_and_no_more(cache, monkeypatch):
    failures = fail(monkeypatch, "write", errno.ENOSPC)
    cache["k"] = b"x"
    assert len(failures) <= 2


def test_a_file_system_that_takes_no_attributes_is_learned_by_the_first_write(cache, monkeypatch):
    fail(monkeypatch, "setxattr", errno.ENOTSUP)
    cache["k"] = b"code"
    assert (cache["k"], cache.stats().dropped_writes) == (b"code", 0)


def test_dropped_writes_are_logged_once_at_warning_and_then_quietly(cache, monkeypatch, caplog):
    fail(monkeypatch, "rename", errno.EIO)
    with caplog.at_level(logging.DEBUG, "lockcache"):
        for number in range(5):
            cache[str(number)] = b"x"
    levels = [record.levelno for record in caplog.records if "dropped" in record.message]
    assert levels == [logging.WARNING] + [logging.DEBUG] * 4
    assert cache.stats().dropped_writes == 5


def test_a_lock_that_is_not_free_in_time_drops_the_write_and_the_older_value(cache):
    cache["k"] = b"older"
    stuck = ProcessLock(Layout(cache.path).lock(shard_of(b"k")), 1.0)
    with stuck:
        cache["k"] = b"newer"
        assert cache.get("k") is None
        cache["free"] = b"1"  # another shard
        assert cache["free"] == b"1"
    stuck.close()
    for file in os.scandir(Layout(cache.path).tmp):  # what the removal without the lock left: see test_staging
        os.unlink(file)
    expect_dropped(cache)


@pytest.mark.parametrize("use", ["delete", "clear"])
def test_a_stuck_lock_does_not_keep_an_entry_from_being_removed(cache, use):
    cache["k"] = b"older"
    stuck = ProcessLock(Layout(cache.path).lock(shard_of(b"k")), 1.0)
    with stuck:
        if use == "delete":
            del cache["k"]
        else:
            cache.clear()
        assert cache.get("k") is None
    stuck.close()
    cache.recount()
    assert (cache.stats().bytes, cache.stats().entries) == (0, 0)


@pytest.mark.parametrize("cache", [False], indirect=True, ids=["attribute"])
@pytest.mark.parametrize("older", [None, b"older"])
def test_what_a_used_up_quota_keeps_from_being_accounted_for_is_stored(cache, monkeypatch, older):
    """It refuses to copy the block of the page that is written, and a removal as well; btrfs has attributes."""
    if older is not None:
        cache["k"] = older
    add, refused = StatePage.add_locked, []

    def refuse(page, shard, bytes_, entries, known):
        if bytes_ > 0:
            return add(page, shard, bytes_, entries, known)
        refused.append(bytes_)
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(StatePage, "add_locked", refuse)
    cache["k"] = b"newer"
    assert refused
    assert cache["k"] == b"newer"
    assert cache.stats().dropped_writes == 0
    monkeypatch.undo()
    assert all(repair.drift_bytes >= 0 for repair in cache.recount())
    assert cache["k"] == b"newer"


@pytest.mark.parametrize("fsync", [False, True])
def test_fsync_is_done_only_where_it_is_asked_for(cache_path, monkeypatch, fsync):
    with FileStreamProgramCache(cache_path, fsync=fsync) as cache:
        calls = []
        real = os.fsync
        monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(fd), real(fd)))
        cache["k"] = b"1"
        assert bool(calls) == fsync


@pytest.mark.parametrize("shard", [0x05, 0xAB, 0xFF])
def test_an_entry_of_any_shard_goes_though_its_lock_is_held(cache_path, shard):
    [key] = keys_in_shard(shard, 1)
    with FileStreamProgramCache(cache_path, lock_timeout_seconds=0.05) as cache:
        cache[key] = b"code"
        holder = ProcessLock(Layout(str(cache_path)).lock(shard), 5.0)
        with holder:
            del cache[key]
            assert cache.get(key) is None
        holder.close()
        cache.recount()
        assert (cache.stats().bytes, cache.stats().entries) == (0, 0)


@pytest.mark.parametrize("cap, is_stored", [(450, True), (300, False), (2000, True), (None, True)])
def test_a_write_that_had_its_room_by_another_policy_makes_room_by_the_new_one(cache_path, monkeypatch, cap, is_stored):
    """A process that sets the policy alone, and evicts nothing."""
    write, changed = StagedEntry.write, []

    def change(*arguments, **options):
        if not changed:
            changed.append(None)
            set_policy(cache_path, Policy(cap))
        write(*arguments, **options)

    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["older"] = b"x" * 500
        monkeypatch.setattr(StagedEntry, "write", change)
        cache["k"] = b"y" * 400
        assert cache.get("k") == (b"y" * 400 if is_stored else None)
        assert cap is None or not is_stored or on_disk(cache_path).bytes <= cap
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path)
        cache["l"] = b"z" * 100
        assert cap is None or on_disk(cache_path).bytes <= cap
    assert os.listdir(Layout(str(cache_path)).tmp) == []


def test_caps_that_change_in_turns_and_leave_room_keep_no_write_from_its_end(cache_path, monkeypatch):
    """Each write takes longer than it takes until the next program opens the directory."""
    write, times = StagedEntry.write, []

    def change(*arguments, **options):
        write(*arguments, **options)
        times.append(None)
        set_policy(cache_path, Policy(1000 + len(times) % 2))

    with FileStreamProgramCache(cache_path, max_size_bytes=1000, lock_timeout_seconds=0.5) as cache:
        monkeypatch.setattr(StagedEntry, "write", change)
        cache["k"] = b"y" * 400
        assert len(times) == 1
        assert cache["k"] == b"y" * 400


def test_a_page_that_is_damaged_while_a_write_has_its_room_keeps_it_from_nothing(cache_path, monkeypatch):
    write = StagedEntry.write

    def spoil(*arguments, **options):
        damage(cache_path)
        write(*arguments, **options)

    with FileStreamProgramCache(cache_path, max_size_bytes=1000, lock_timeout_seconds=5.0) as cache:
        with monkeypatch.context() as patch:
            patch.setattr(StagedEntry, "write", spoil)
            cache["k"] = b"y" * 400
        assert cache["k"] == b"y" * 400
        cache["l"] = b"y" * 700
        assert on_disk(cache_path).bytes <= 1000


@pytest.mark.parametrize("at", ["reserve", "evict_to_limit"])
def test_a_cap_that_is_lowered_while_a_write_begins_or_waits_holds(cache_path, monkeypatch, at):
    """The process that lowers the cap evicts down to it, before the write reserves or with its reservation counted."""
    cache = FileStreamProgramCache(cache_path, max_size_bytes=1000)
    cache.update({str(number): b"x" * 100 for number in range(9)})
    owner = {"reserve": StagedEntry, "evict_to_limit": admission}[at]
    real, lowered = getattr(owner, at), []

    def lower(*arguments, **options):
        evicted = real(*arguments, **options) if at == "evict_to_limit" else None
        if not lowered:
            lowered.append(None)
            FileStreamProgramCache(cache_path, max_size_bytes=500)
        return real(*arguments, **options) if evicted is None else evicted

    monkeypatch.setattr(owner, at, lower)
    cache["k"] = b"y" * 400
    assert lowered
    assert cache["k"] == b"y" * 400
    assert cache.stats().bytes <= 500
    lowered.clear()
    FileStreamProgramCache(cache_path, max_size_bytes=1000).close()
    cache["too large by then"] = b"z" * 800
    assert (cache.get("too large by then"), cache.stats().dropped_writes) == (None, 1)
    assert cache.stats().bytes <= 500
    assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache.path)

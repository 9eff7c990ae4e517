# SPDX-License-Identifier: Apache-2.0
"""Staging, publishing, removing one entry: each with its accounting, whichever step it ends at."""

from __future__ import annotations

import errno
import os
import resource
import time

import pytest

from lockcache import FileStreamProgramCache, LockTimeoutError
from lockcache.filestream.accounting import StatePage
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import SPACES
from lockcache.filestream.disk.layout import StagedName, entry_name, parse_staged_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.disk.owners import forget_given_up, is_given_up, myself
from lockcache.filestream.entry.codec import HEAD_BYTES, XATTR, Record, pack
from lockcache.filestream.entry.removal import remove_entry
from lockcache.filestream.entry.reservation import discard
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.filestream.repair import reap, recount_all
from tests.unit.forked import in_child
from tests.unit.material import (
    descriptors,
    entry_path,
    on_disk,
    open_directory,
    put,
    record_path,
    shard_of,
)

NAME = entry_name(b"k")


@pytest.fixture(params=["local", "network"])
def directory(cache_path, request, monkeypatch):
    with monkeypatch.context() as patch:
        if request.param == "network":
            patch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "lustre")
        directory = open_directory(cache_path)
    yield directory
    directory.close()


def staged_names(directory):
    return [parse_staged_name(name) for name in os.listdir(directory.layout.tmp)]


def accounted(directory):
    total = directory.usage().total()
    assert total == on_disk(directory.layout.root)
    return total


def stage(directory, payload=b"payload", record=b""):
    staged = StagedEntry(directory, NAME, len(payload) + len(record))
    staged.reserve()
    staged.set_attributes(b"" if record else pack(NAME, payload, Record(len(payload), 0, 0, b"")))
    staged.write(payload, record, fsync=False)
    return staged


def test_reserving_accounts_for_the_bytes_before_any_is_written(directory):
    staged = StagedEntry(directory, NAME, 1000)
    staged.reserve()
    me = myself()
    [name] = staged_names(directory)
    assert name == StagedName(shard_of(b"k"), 1000, me.host, me.pid, me.start_ticks, name.serial)
    assert os.path.getsize(f"{directory.layout.tmp}/{name}") == 0
    # Where the lock is kept until the entry is published, that is accounted for too.
    assert directory.usage().total() == (1000, int(directory.layout.is_network))
    staged.abandon()
    assert accounted(directory) == (0, 0)


def test_who_gives_way_leaves_what_a_recount_finds(directory):
    staged = StagedEntry(directory, NAME, 1000)
    staged.reserve()
    staged.reservation.give_way()
    assert accounted(directory) == (1000, 0)
    assert recount_all(directory) == []
    staged.write(b"x" * 1000, b"", fsync=False)
    staged.publish(fsync=False)
    assert accounted(directory) == (1000, 1)


@pytest.mark.parametrize("record", [b"", b"r" * 50])
def test_publishing_makes_the_entry_and_keeps_what_was_reserved(directory, record):
    staged = stage(directory, record=record)
    assert not os.path.exists(entry_path(directory.layout.root))
    staged.publish(fsync=False)
    assert staged_names(directory) == []
    assert accounted(directory) == (7 + len(record), 1)
    with open(entry_path(directory.layout.root), "rb") as file:
        assert file.read() == b"payload"
    staged.abandon()  # does nothing any more
    assert accounted(directory) == (7 + len(record), 1)


@pytest.mark.parametrize("record", [b"", b"r" * 50])
@pytest.mark.parametrize("older_has_record_file", [False, True])
def test_publishing_over_an_older_entry_gives_its_bytes_back(directory, record, older_has_record_file):
    put(directory, b"k", b"older" * 100, record_files=older_has_record_file, tail=b"t" * 30)
    stage(directory, record=record).publish(fsync=False)
    assert accounted(directory) == (7 + len(record), 1)
    assert os.path.exists(record_path(directory.layout.root)) == bool(record)


def test_abandoning_next_to_a_stuck_lock_leaves_the_accounting_to_the_next_reap(cache_path):
    directory = open_directory(cache_path, timeout_seconds=0.05)
    staged = stage(directory)
    stuck = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    with stuck:
        staged.abandon()
    [name] = os.listdir(directory.layout.tmp)
    path = os.path.join(directory.layout.tmp, name)
    assert os.path.getsize(path) == 0
    assert directory.usage().total_bytes() == 7  # too much, never too little
    os.utime(path, (0, 0))
    assert reap(directory) == 1
    assert os.listdir(directory.layout.tmp) == []
    assert directory.usage().total_bytes() == 0
    stuck.close()
    directory.close()


def test_what_is_removed_without_the_lock_is_accounted_for_until_the_next_reap(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"k"] = b"x" * 10_000
    directory = open_directory(cache_path, timeout_seconds=0.05)
    stuck = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    with stuck:
        assert remove_entry(directory, entry_name(b"k"), 0.0)
    [file] = os.listdir(directory.layout.tmp)
    assert directory.usage().total_bytes() == 10_000  # too much, never too little
    os.utime(os.path.join(directory.layout.tmp, file), (0, 0))
    assert reap(directory) == 1
    assert os.listdir(directory.layout.tmp) == []
    assert accounted(directory)
    stuck.close()
    directory.close()


def test_what_is_published_is_no_longer_open_so_that_evicting_it_frees_its_bytes_at_once(directory):
    staged = stage(directory)
    [name] = os.listdir(directory.layout.tmp)
    assert not [target for target in descriptors() if target.endswith(name)]
    staged.publish(fsync=False)


def test_a_staged_file_holds_a_lock_that_tells_other_hosts_that_its_writer_lives(directory):
    staged = StagedEntry(directory, NAME, 10)
    staged.reserve()
    staged.reservation.give_way()  # until then the shard's lock tells
    [name] = os.listdir(directory.layout.tmp)
    probe = ProcessLock(f"{directory.layout.tmp}/{name}", 0.0)
    assert not probe.try_acquire()
    staged.abandon()
    probe.close()


@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize("record, has_older", [(b"record", True), (b"record", False), (b"", False)])
def test_each_name_is_on_the_disk_before_what_it_replaces_goes(directory, monkeypatch, record, has_older, fsync):
    """Between the two renames the older record stands behind the new one, so that either payload has its own."""
    events, root, record_file = [], directory.layout.root, record_path(directory.layout.root)
    if has_older:
        put(directory, b"k", b"older", record_files=True)
    os_fsync, rename, truncate = os.fsync, os.rename, os.ftruncate

    def note_fsync(fd):
        path = os.readlink(f"/proc/self/fd/{fd}")
        events.append("staged" if "/tmp/" in path else os.path.relpath(path, root))
        os_fsync(fd)

    def note_rename(source, target, **fds):
        rename(source, target, **fds)
        events.append("rename")
        if record:
            assert (os.path.getsize(record_file) > len(record)) is has_older

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    monkeypatch.setattr(os, "ftruncate", lambda fd, length: (events.append("truncate"), truncate(fd, length)))
    staged = StagedEntry(directory, NAME, 20)
    staged.reserve()
    staged.write(b"payload", record, fsync=fsync)
    events = [each for each in events if each != "truncate"]
    staged.publish(fsync=fsync)
    entries, records = (os.path.relpath(os.path.dirname(path), root) for path in (entry_path(root), record_file))
    of_records = [*["staged"] * has_older, "rename", records, *_above(records)] if record else []
    replaced = [entries, *_above(entries), "truncate"] if has_older else []
    expected = ["staged"] * (1 + bool(record)) + [*of_records, "rename", *replaced, entries, *_above(entries)]
    assert events == [each for each in expected if fsync or each in ("rename", "truncate")]


def _above(path):
    parts = path.split("/")[:-1]
    return ["/".join(parts[: len(parts) - number]) for number in range(len(parts))] + ["."]


def test_removing_gives_the_bytes_back_and_says_whether_there_was_one(directory):
    for record_files in (False, True):
        put(directory, b"k", b"x" * 100, record_files=record_files)
        assert remove_entry(directory, NAME, 5.0) is True
        assert remove_entry(directory, NAME, 5.0) is False
        assert accounted(directory) == (0, 0)
        assert not os.path.exists(record_path(directory.layout.root))


def test_removing_does_not_depend_on_the_lock(cache_path):
    directory = open_directory(cache_path)
    put(directory, b"k", b"x" * 100)
    stuck = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    with stuck:
        assert remove_entry(directory, NAME, 0.0) is True
    assert not os.path.exists(entry_path(cache_path))
    assert directory.usage().total_bytes() == 100  # too much, never too little
    stuck.close()
    directory.close()


def test_what_an_attribute_holds_is_on_the_inode_of_the_payload(directory):
    put(directory, b"k", b"payload", tail=b"tail")
    blob = os.getxattr(entry_path(directory.layout.root), XATTR)
    assert (len(blob), blob[HEAD_BYTES:]) == (HEAD_BYTES + 4, b"tail")


@pytest.mark.parametrize("directory", ["network"], indirect=True)
def test_on_a_network_file_system_the_lock_is_kept_until_publishing_or_a_wait(directory, monkeypatch):
    lock = ProcessLock(directory.layout.lock(shard_of(b"k")), 0.0)  # as another process has it

    def is_free() -> bool:
        hold = lock.try_hold()
        if hold is not None:
            hold.release()
        return hold is not None

    staged = stage(directory)
    assert not is_free()
    staged.publish(fsync=False)
    assert is_free()

    staged = StagedEntry(directory, NAME, 1)
    staged.reserve()
    assert not is_free()
    staged.reservation.give_way()
    assert is_free()
    staged.write(b"x", b"", fsync=False)
    staged.publish(fsync=False)

    stage(directory).abandon()
    assert is_free()

    staged = stage(directory)
    asked, looks = type(staged.reservation.page), iter([OSError(errno.EIO, "the server is gone")])
    with monkeypatch.context() as failing:
        failing.setattr(asked, "was_at", lambda *_: (_ for _ in ()).throw(next(looks)))
        with pytest.raises(OSError, match="the server is gone"):
            staged.publish(fsync=False)
    assert is_free(), "nobody has what it could be given back by"
    staged.abandon()
    accounted(directory)
    lock.close()


@pytest.mark.parametrize("directory", ["network"], indirect=True)
def test_on_a_network_file_system_a_large_write_does_not_keep_the_lock(directory):
    staged = StagedEntry(directory, NAME, (1 << 20) + 1)
    staged.reserve()
    hold = ProcessLock(directory.layout.lock(shard_of(b"k")), 0.0).try_hold()
    assert hold is not None
    hold.release()
    staged.abandon()


def test_no_lock_is_waited_for_past_the_deadline(cache_path):
    directory = open_directory(cache_path, timeout_seconds=3600.0)
    busy = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    staged = StagedEntry(directory, NAME, 100, time.monotonic())
    with busy, pytest.raises(LockTimeoutError):
        staged.reserve()
    busy.close()
    directory.close()


def test_where_nothing_may_be_changed_removing_raises_and_leaves_the_entry(cache_path):
    directory = open_directory(cache_path)
    put(directory, b"k", b"x" * 10)
    directory.close()
    with pytest.raises(PermissionError):
        remove_entry(CacheDirectory(str(cache_path), 5.0, is_read_only=True), NAME, 0.0)
    assert os.path.exists(entry_path(cache_path))


def test_removing_without_the_lock_follows_no_symlink_to_a_shard(directory, tmp_path):
    put(directory, b"k", b"x" * 10)
    shard, elsewhere = os.path.dirname(directory.layout.entry(NAME)), tmp_path / "elsewhere"
    os.rename(shard, elsewhere)
    os.symlink(elsewhere, shard)
    busy = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    with busy:
        assert remove_entry(directory, NAME, 0.0) is False
    busy.close()
    assert os.listdir(elsewhere) == [NAME[2:]]


def test_what_was_reserved_for_folders_is_given_back_by_publishing(directory):
    directory.layout.space = SPACES[True](4096, 0, True)
    payload = bytes(4096)
    staged = StagedEntry(directory, NAME, 5 * 4096)
    staged.reserve()
    staged.set_attributes(pack(NAME, payload, Record(len(payload), 0, 0, b"")))
    staged.write(payload, b"", fsync=False)
    staged.publish(fsync=False)
    assert recount_all(directory) == []


def test_what_cannot_be_given_back_is_left_to_the_next_reap(directory, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ESTALE, "another host has just replaced the page")

    staged = stage(directory)
    with monkeypatch.context() as patch:
        patch.setattr(StatePage, "add_locked", refuse)
        staged.abandon()
    [name] = os.listdir(directory.layout.tmp)
    assert directory.usage().total_bytes() == 7  # too much, never too little
    os.utime(directory.layout.tmp + "/" + name, (0, 0))
    assert reap(directory) == 1
    assert accounted(directory) == (0, 0)


def test_what_the_disk_does_not_let_go_is_given_up(tmp_path):
    def refuse(path):
        raise OSError(errno.EROFS, "Read-only file system")

    assert discard(str(tmp_path / "staged"), refuse) is False
    assert is_given_up("staged")
    forget_given_up("staged")


def test_a_recount_after_a_failed_publish_leaves_the_entries_counted(directory, monkeypatch):
    put(directory, b"k", b"older")
    staged = stage(directory)
    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(OSError, match="broken"):
            staged.publish(fsync=False)
    assert recount_all(directory) == []
    staged.abandon()
    assert accounted(directory).entries == 1


def _put_beyond_the_limit(path: str) -> tuple[int, int]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, 256 * 1024))
    with FileStreamProgramCache(path) as cache:
        cache[b"large"] = os.urandom(1024 * 1024)
        return len(cache), cache.stats().dropped_writes


def test_a_write_of_which_only_a_part_arrives_is_not_an_entry(tmp_path) -> None:
    assert in_child(lambda: _put_beyond_the_limit(str(tmp_path / "cache"))) == (0, 1)

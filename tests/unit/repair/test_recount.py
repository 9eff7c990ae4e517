# SPDX-License-Identifier: Apache-2.0
"""Recount and reap: what the dead left goes, what the living stage stays, and drift ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lockcache import FileStreamProgramCache
from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import StagedName, entry_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.filestream.policy import Policy
from lockcache.filestream.repair.recount import reap, recount_all, recount_shard
from tests.unit.material import entry_path, on_disk, put, record_path, set_last_use, shard_of

SHARD = shard_of(b"k")
FOREIGN_HOST = "0123456789abcdef"


@pytest.fixture(scope="module")
def dead():
    """An owner on this host who is no more."""
    code = "from lockcache.filestream.disk.owners import myself; print(*myself())"
    host, pid, start = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    return host, int(pid), int(start)


def stage_as(directory, owner, size=500, shard=SHARD, age_seconds=100):
    """A staged file of somebody, so old; its path. Accounted for, as by a writer."""
    path = f"{directory.layout.tmp}/{StagedName(shard, size, *owner, 0)}"
    with open(path, "w"):
        pass
    set_last_use(path, os.stat(path).st_mtime - age_seconds)
    with directory.locks[shard]:
        directory.usage().add_locked(shard, size, 0)
    return path


def test_a_dead_owners_staged_file_goes_with_its_reservation(directory, dead):
    put(directory, b"k", b"x" * 100)
    paths = [stage_as(directory, dead, shard=shard) for shard in {SHARD, 1, 2}]
    assert reap(directory) == len(paths)
    assert not any(map(os.path.exists, paths))
    assert directory.usage().total() == on_disk(directory.layout.root) == (100, 1)
    assert reap(directory) == 0


def test_a_dead_owners_file_goes_at_a_recount_however_young_it_is(directory, dead):
    path = stage_as(directory, dead, age_seconds=0)
    repair = recount_shard(directory, SHARD)
    assert (repair.before, repair.after, repair.drift_bytes) == (Slot(500, 0), Slot(0, 0), 500)
    assert not os.path.exists(path)


def test_a_file_that_is_dated_in_the_future_is_not_young(directory, dead):
    path = stage_as(directory, dead, age_seconds=-3600)  # as after a clock that was set back
    assert reap(directory) == 1
    assert not os.path.exists(path)


def test_without_a_cap_and_a_new_opening_some_hundred_puts_remove_it(directory, dead):
    cache = FileStreamProgramCache(directory.layout.root)
    cache[b"first"] = b"x"
    path = stage_as(directory, dead)
    for number in range(300):
        cache[b"%d" % number] = b"x"
    assert not os.path.exists(path)
    assert directory.usage().total() == on_disk(directory.layout.root)


def test_a_living_owners_staged_file_stays_however_old_it_is(directory):
    path = stage_as(directory, myself(), age_seconds=10**6)
    assert reap(directory) == 0
    assert recount_all(directory) == []
    assert os.path.exists(path)
    assert directory.usage().total() == (500, 0)


def test_the_staged_file_of_a_reused_pid_goes(directory):
    path = stage_as(directory, myself()._replace(start_ticks=1))
    reap(directory)
    assert not os.path.exists(path)


@pytest.mark.parametrize("age, locked, stays", [(10, False, True), (10**4, True, True), (10**4, False, False)])
def test_of_another_host_only_what_is_old_and_locked_by_nobody_goes(directory, age, locked, stays):
    path = stage_as(directory, (FOREIGN_HOST, 1, 1), age_seconds=age)
    writer = ProcessLock(path, 1.0)
    if locked:
        writer.acquire(1.0)
    reap(directory)
    recount_all(directory)
    assert os.path.exists(path) == stays
    assert directory.usage().total() == ((500, 0) if stays else (0, 0))
    if locked:
        writer.release()
    writer.close()


@pytest.mark.parametrize("age, stays", [(100, True), (3500, True), (4000, False)])
def test_a_staged_file_of_another_host_that_cannot_be_opened_goes_after_an_hour(directory, age, stays):
    path = f"{directory.layout.tmp}/{StagedName(SHARD, 500, FOREIGN_HOST, 1, 1, 0)}"
    os.symlink("nowhere", path)  # which no process opens
    then = os.lstat(path).st_mtime - age
    os.utime(path, (then, then), follow_symlinks=False)
    recount_shard(directory, SHARD)
    assert os.path.lexists(path) == stays


@pytest.mark.parametrize("age, stays", [(100, True), (3500, True), (4000, False)])
def test_staged_files_of_other_programs_go_after_an_hour(directory, age, stays):
    path = f"{directory.layout.tmp}/tmpab12cd"
    with open(path, "w"):
        pass
    set_last_use(path, os.stat(path).st_mtime - age)
    reap(directory)
    assert os.path.exists(path) == stays


def test_the_bytes_of_files_of_other_programs_are_off_the_limit_up_to_three_quarters(directory):
    directory.policy.replace(Policy(8_000_000))
    full = directory.limit_bytes()
    path = f"{directory.layout.tmp}/entry-ab12cd"
    for size, counted in ((1_000_000, 1_000_000), (7_500_000, 6_000_000)):
        with open(path, "wb") as file:
            file.write(bytes(size))
        reap(directory)
        assert full - counted - 4096 <= directory.limit_bytes() <= full - counted + 4096
    os.truncate(path, 0)
    os.truncate(path, 10**12)  # a length alone takes no room
    os.symlink("/bin/sh", f"{directory.layout.tmp}/entry-link")
    os.mkfifo(f"{directory.layout.tmp}/entry-fifo")
    reap(directory)
    assert directory.limit_bytes() == full
    # A policy that is published meanwhile has nothing of it.
    os.truncate(path, 0)
    with open(path, "wb") as file:
        file.write(bytes(1_000_000))
    reap(directory)
    directory.policy.replace(Policy(6_000_000))
    other = CacheDirectory(directory.layout.root, 1.0)
    assert other.limit_bytes() == 6_000_000 - (8_000_000 - full)
    other.close()


@pytest.mark.parametrize("kind, content, stays", [("nfs4", b"", True), ("nfs4", b"x", False), ("", b"", False)])
@pytest.mark.parametrize("mtime", [0, 2**31 - 1])
def test_a_file_whose_time_an_nfs_client_has_yet_to_set_is_young(directory, mtime, kind, content, stays, monkeypatch):
    # As a server shows it to another host, between exclusive creation and the first change of its attributes.
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda path: kind)
    path = f"{directory.layout.tmp}/entry-ab12cd"
    with open(path, "wb") as file:
        file.write(content)
    set_last_use(path, mtime)
    reap(directory)
    assert os.path.exists(path) == stays


@pytest.mark.parametrize("age, stays", [(100, True), (500, True), (700, False)])
def test_the_folder_of_another_hosts_view_goes_after_ten_minutes(directory, age, stays):
    path = f"{directory.layout.tmp}/{StagedName(SHARD, 5, FOREIGN_HOST, 1, 1, 1)}"
    os.mkdir(path)
    set_last_use(path, os.stat(path).st_mtime - age)
    reap(directory)
    recount_all(directory)
    assert os.path.exists(path) == stays


@pytest.mark.parametrize("age, stays", [(50, True), (100, False)])
def test_a_lease_file_that_nobody_holds_goes_after_a_minute(directory, age, stays):
    path = directory.layout.lease(entry_name(b"k"), 0)
    os.makedirs(directory.layout.leases, exist_ok=True)
    with open(path, "w"):
        pass
    set_last_use(path, os.stat(path).st_mtime - age)
    reap(directory)
    assert os.path.exists(path) == stays


@pytest.mark.parametrize("record_files", [False, True])
@pytest.mark.parametrize("drift", [Slot(10**9, 5), Slot(0, 0), Slot(1, 100)])
def test_one_recount_makes_the_accounting_what_the_disk_holds(directory, record_files, drift):
    for number in range(20):
        put(directory, b"%d" % number, b"x" * 100, record_files=record_files)
    truth = on_disk(directory.layout.root)
    shard = shard_of(b"7")
    with directory.locks[shard]:
        directory.usage().set_locked(shard, drift)
    [repair] = recount_all(directory)
    assert (repair.shard, repair.before) == (shard, drift)
    assert directory.usage().total() == truth == on_disk(directory.layout.root)
    assert recount_all(directory) == []


def test_a_record_without_an_entry_goes_and_one_with_an_entry_stays(directory):
    put(directory, b"k", b"x", record_files=True)
    put(directory, b"other", b"x", record_files=True)
    os.unlink(entry_path(directory.layout.root))
    recount_all(directory)
    assert not os.path.exists(record_path(directory.layout.root))
    assert os.path.exists(record_path(directory.layout.root, b"other"))


def test_a_recount_waits_for_the_shard_and_no_longer_than_its_timeout(directory):
    busy = ProcessLock(directory.layout.lock(SHARD), 1.0)
    with busy, pytest.raises(LockTimeoutError):
        recount_shard(directory, SHARD, 0.01)
    busy.close()


def test_reaping_passes_over_a_busy_shard(directory, dead):
    path = stage_as(directory, dead)
    busy = ProcessLock(directory.layout.lock(SHARD), 1.0)
    with busy:
        assert reap(directory) == 0
    assert os.path.exists(path)
    assert reap(directory) == 1
    busy.close()


def test_a_cache_recounts_itself_and_says_what_was_wrong(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"], cache["other"] = b"x" * 100, b"y" * 50
        os.unlink(entry_path(cache_path))
        [repair] = cache.recount()
        assert (repair.shard, repair.drift_bytes) == (SHARD, 100)
        assert (cache.stats().bytes, cache.stats().entries) == (50, 1)
        assert cache.recount() == []


def test_a_recount_keeps_what_a_living_writer_has_reserved(directory):
    staged = StagedEntry(directory, entry_name(b"k"), 700)
    staged.reserve()
    assert recount_all(directory) == []
    assert directory.usage().total() == (700, 0)
    staged.abandon()
    assert directory.usage().total() == (0, 0)

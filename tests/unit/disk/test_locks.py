# SPDX-License-Identifier: Apache-2.0
"""Shard locks: one holder among threads, processes and forked children, and nobody waits for ever."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import locks
from lockcache.filestream.disk.folders import PlantedFolderError
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.locks import ProcessLock, ShardLocks, _is_in_lower_half
from tests.unit.forked import in_child
from tests.unit.material import descriptors, descriptors_to_begin_with

# A process that takes the lock, says so, and keeps it until it is asked to end.
HOLD = """
import sys
from lockcache.filestream.disk.locks import ProcessLock
lock = ProcessLock(sys.argv[1], 30.0)
lock.acquire(30.0)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "locks").mkdir()
    return str(tmp_path / "locks" / "ab")


@pytest.fixture
def lock(path):
    lock = ProcessLock(path, 30.0)
    yield lock
    lock.close()


@pytest.fixture
def holder(path):
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_what_is_held_cannot_be_taken_by_this_or_another_object(lock, path):
    other = ProcessLock(path, 0.0)
    with lock:
        assert not lock.try_acquire()
        assert not other.try_acquire()
    assert other.try_acquire()
    assert not lock.try_acquire()
    other.release()
    with lock:
        pass


@pytest.mark.parametrize("way", ["stays open", "above the limit", "was asked to close"])
def test_what_is_released_is_free_though_a_child_has_the_descriptor(lock, path, monkeypatch, way):
    """A fork in between opening the file and noting its number leaves the child a copy that it knows nothing of."""
    if way == "above the limit":
        monkeypatch.setattr(locks, "_is_in_lower_half", lambda fd: False)
    lock.acquire(30.0)
    copy = os.dup(lock._fd)
    if way == "was asked to close":
        lock.close()
    lock.release()
    other = ProcessLock(path, 0.0)
    assert other.try_acquire()
    other.release()
    other.close()
    os.close(copy)


@pytest.mark.parametrize("shared", [True, False], ids=["one-object", "an-object-each"])
def test_threads_exclude_each_other(lock, path, shared):
    count, threads, turns = [0], 4, 50
    start = threading.Barrier(threads)

    def work():
        mine = lock if shared else ProcessLock(path, 30.0)
        start.wait(30)
        for _ in range(turns):
            with mine:
                seen = count[0]
                os.stat(path)  # lets another thread run, if the lock does
                count[0] = seen + 1

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work) for _ in range(threads)]:
            future.result(60)
    assert count == [threads * turns]


@pytest.mark.slow
def test_processes_exclude_each_other(lock, path, tmp_path):
    counter = tmp_path / "count"
    counter.write_text("0")
    code = """
import sys
from pathlib import Path
from lockcache.filestream.disk.locks import ProcessLock
lock, counter = ProcessLock(sys.argv[1], 60.0), Path(sys.argv[2])
for _ in range(100):
    with lock:
        counter.write_text(str(int(counter.read_text()) + 1))
"""
    processes = [subprocess.Popen([sys.executable, "-c", code, path, str(counter)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert counter.read_text() == "300"


@pytest.mark.slow
def test_waiting_ends_with_the_timeout_and_says_for_what(path, lock, holder):
    with pytest.raises(LockTimeoutError, match="another process") as error:
        lock.acquire(0.05)
    assert error.value.path == path
    assert path in str(error.value)
    assert not lock.try_acquire()


def test_waiting_for_a_thread_ends_with_the_timeout_too(path, lock):
    with lock, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire, 0.05)
        with pytest.raises(LockTimeoutError, match="another thread") as error:
            waiting.result(30)
    assert error.value.path == path


def test_who_holds_it_already_is_told_so_soon(path, lock, monkeypatch):
    pauses = []
    monkeypatch.setattr("lockcache.filestream.disk.locks.time.sleep", pauses.append)
    with lock, pytest.raises(LockTimeoutError, match="this thread itself") as error:
        lock.acquire(60.0)
    assert error.value.path == path
    assert sum(pauses) < 0.05
    with lock:
        pass


def test_a_lock_that_was_not_had_in_time_can_be_had_later(lock, holder):
    with pytest.raises(LockTimeoutError):
        lock.acquire(0.0)
    holder.stdin.write("\n")
    holder.stdin.flush()
    with lock:
        pass


@pytest.mark.slow
def test_a_waiter_gets_the_lock_when_its_holder_is_killed(lock, holder):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire, 60.0)
        holder.kill()
        waiting.result(60)
    lock.release()


@pytest.mark.parametrize("replace", [False, True], ids=["unlinked", "replaced"])
def test_a_lock_file_that_vanished_underneath_does_not_let_two_in(lock, path, replace):
    with lock:
        assert not lock.is_lost()
        assert not lock.is_in_doubt()
        os.unlink(path)
        if replace:
            with open(path, "w"):
                pass
        assert lock.is_lost()
        assert lock.is_in_doubt()
    newcomer = ProcessLock(path, 0.0)
    with lock:
        assert not newcomer.try_acquire()
        assert not lock.is_lost()
    assert newcomer.try_acquire()
    assert not lock.try_acquire()
    newcomer.release()


@pytest.mark.parametrize("names, length", [(2, 0), (2, 1), (1, 5)])
def test_a_file_of_somebody_in_a_locks_place_keeps_its_length(lock, path, tmp_path, names, length):
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"x" * length)
    os.utime(theirs, (0, 0))
    os.link(theirs, path) if names == 2 else os.rename(theirs, path)
    with lock:
        lock.note_counted()
        assert os.stat(path).st_size == length


def test_descriptors_do_not_leak(lock, path):
    before = descriptors_to_begin_with()
    for _ in range(50):
        with lock:
            pass
        os.unlink(path)
        lock.try_acquire()
        lock.release()
    assert len(descriptors()) <= len(before) + 1
    lock.close()
    lock.close()
    assert descriptors() == before
    dropped = ProcessLock(path, 1.0)
    with dropped:
        pass
    del dropped
    assert descriptors() == before


def test_a_child_does_not_share_its_parents_lock(lock):
    with lock:
        assert in_child(lock.try_acquire) is False
        assert not ProcessLock(lock.path, 0.0).try_acquire()  # the child's end did not free it
    assert in_child(lambda: (lock.try_acquire(), lock.release())) == (True, None)


def test_a_childs_lock_keeps_its_parent_out(lock):
    with lock:
        pass  # open before the fork: the child inherits the descriptor
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            lock.acquire(10.0)
            os.write(write, b"held")
            os.read(0, 0)
            signal_end.wait(10)
        finally:
            os._exit(0)
    try:
        assert os.read(read, 4) == b"held"
        assert not lock.try_acquire()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
    with lock:
        pass


signal_end = threading.Event()  # never set: the child above ends by SIGKILL, or by itself


def test_a_child_forked_while_a_thread_holds_the_lock_can_take_it_afterwards(lock):
    held, go_on = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            go_on.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.write(ready_write, b"f")
            os.read(go_read, 1)
            lock.acquire(10.0)
            lock.release()
            status = 0
        finally:
            os._exit(status)
    assert os.read(ready_read, 1) == b"f"
    go_on.set()
    thread.join(30)
    os.write(go_write, b"g")
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (ready_read, ready_write, go_read, go_write):
        os.close(fd)


def test_a_lock_that_cannot_be_opened_is_an_os_error_and_not_held(tmp_path):
    target = tmp_path / "target"
    target.touch()
    link = tmp_path / "link"
    link.symlink_to(target)
    planted = ProcessLock(str(link), 1.0)
    with pytest.raises(OSError, match="link"):
        planted.acquire(1.0)
    with pytest.raises(OSError, match="link"):
        planted.try_acquire()
    link.unlink()
    with planted:
        pass


def test_a_file_system_that_refuses_to_lock_is_an_error_and_not_a_free_pass(lock, monkeypatch):
    # A fake: no file system here refuses flock.
    def refuse(fd, blocking):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("lockcache.filestream.disk.locks.lock_descriptor", refuse)
    with pytest.raises(LockTimeoutError, match="refuses to lock"):
        lock.acquire(0.1)
    monkeypatch.undo()
    with lock:
        pass


def test_a_lock_that_another_holder_gives_back_within_the_timeout_is_taken(path, lock, monkeypatch):
    holder = ProcessLock(path, 1.0)
    holder.acquire(1.0)

    def gives_back(seconds):
        holder.release()
        monkeypatch.undo()

    monkeypatch.setattr("lockcache.filestream.disk.locks.time.sleep", gives_back)
    lock.acquire(0.9)  # less than a second: what is left is compared with nothing else
    lock.release()
    holder.close()


@pytest.mark.parametrize("keeps_open", [True, False])
def test_a_descriptor_is_kept_for_the_next_time_unless_there_are_few_of_them(path, lock, keeps_open, monkeypatch):
    monkeypatch.setattr("lockcache.filestream.disk.locks._is_in_lower_half", lambda fd: keeps_open)
    before = len(descriptors_to_begin_with())
    for _ in range(2):
        with lock:
            assert len(descriptors()) == before + 1
        assert len(descriptors()) == before + keeps_open


@pytest.mark.parametrize("limit, kept", [(1000, [True, True, False]), (resource.RLIM_INFINITY, [True, True, True])])
def test_descriptors_in_the_upper_half_of_what_the_process_may_have_are_not_kept(limit, kept, monkeypatch):
    monkeypatch.setattr("lockcache.filestream.disk.locks.resource.getrlimit", lambda _: (limit, limit))
    assert [_is_in_lower_half(fd) for fd in (3, 499, 500)] == kept


@pytest.mark.parametrize("folder", ["entry_shard", "record_shard"])
def test_of_a_shard_whose_folder_is_a_symlink_there_is_no_lock(tmp_path, folder):
    layout = Layout(str(tmp_path))
    path = getattr(layout, folder)(5)
    os.makedirs(os.path.dirname(path))
    os.symlink(tmp_path, path)
    with pytest.raises(PlantedFolderError):
        ShardLocks(layout, 1.0)[5]

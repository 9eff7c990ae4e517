# SPDX-License-Identifier: Apache-2.0
"""Writers that found no room: one tries at a time, the others are woken, and nobody waits for one who never will."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.admission import Admission
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import PlantedFolderError, ring, waiting
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.entry.staging import StagedEntry
from lockcache.filestream.eviction import evict_to_limit
from lockcache.filestream.policy import Policy
from tests.daemon.daemon_process import until, until_asleep
from tests.threads import run_threads
from tests.unit.material import open_directory, put

# A writer that is the head of the queue, says so, and never tries.
HEAD = """
import sys, time
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.admission import Admission
room = Admission(CacheDirectory(sys.argv[1], 5.0), time.monotonic() + 30)
room.wait()
print("head", flush=True)
sys.stdin.readline()
"""


# Goes on from the first lines of that.
RESERVE = """
from lockcache.filestream.entry.staging import StagedEntry
staged = StagedEntry(CacheDirectory(sys.argv[1], 5.0), "ab" + "0" * 62, 900)
staged.reserve()
print("reserved", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other(directory):
    """The same, opened once more, as another process would have it."""
    other = open_directory(directory.layout.root)
    yield other
    other.close()


@pytest.fixture
def head(directory):
    """Another process that is the head, and was stopped."""
    command = [sys.executable, "-c", HEAD, directory.layout.root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "head\n"
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def room_in(directory, seconds=30.0):
    return Admission(directory, time.monotonic() + seconds)


def has_a_head(directory) -> bool:
    """To go by the lock, as any other program would see it."""
    probe = ProcessLock(directory.layout.room_lock, 0.0)
    is_free = probe.try_acquire()
    if is_free:
        probe.release()
    probe.close()
    return not is_free


def test_who_waits_is_woken_when_the_head_leaves(directory, other, monkeypatch):
    """Not by looking for itself: it would only after an hour."""
    monkeypatch.setattr(waiting, "WOKEN", waiting.Pace(*[3600.0] * 5))
    monkeypatch.setattr("lockcache.filestream.admission._PATIENCE_SECONDS", 7200.0)
    put(directory, b"k", b"x")  # or there would be room for all
    first, second = room_in(directory), room_in(other, 10_000)
    first.wait()
    waiting_thread = threading.Thread(target=second.wait)
    waiting_thread.start()
    until(lambda: os.path.lexists(directory.layout.room_queue))
    until_asleep(waiting_thread)
    first.leave()
    waiting_thread.join(30)
    assert not waiting_thread.is_alive()
    assert has_a_head(directory)
    second.leave()


@pytest.mark.slow
@pytest.mark.parametrize("is_under_cap", [True, False])
def test_small_writes_go_on_whose_reservations_the_head_saw_at_or_under_the_cap(
    directory, other, monkeypatch, is_under_cap
):
    """Though others came before they woke and filled the cache; but not where those came before the head looked."""
    monkeypatch.setattr(waiting, "WOKEN", waiting.Pace(*[3600.0] * 5))
    directory.policy.replace(Policy(1000))
    for number in range(10):
        put(directory, b"%d" % number, b"x" * 100)
    mine, later = (StagedEntry(directory, f"{number:02x}" + "0" * 62, size) for number, size in ((1, 10), (2, 2000)))
    mine.reserve()
    head, waiter = (room_in(each, 30.0 if is_under_cap else 0.5) for each in (directory, other))
    assert head._is_head()
    going_on = []
    thread = threading.Thread(target=lambda: going_on.append(waiter.make_room(1000, 10)))
    thread.start()
    until(lambda: os.path.lexists(directory.layout.room_bell))
    until_asleep(thread)

    def fill(layout, path, *, is_granted):
        if not is_under_cap:
            later.reserve()
        ring(layout, path, is_granted=lambda: is_granted() and (not is_under_cap or later.reserve() is None))

    monkeypatch.setattr("lockcache.filestream.admission.ring", fill)
    assert head.make_room(1000, 0) is is_under_cap
    thread.join(30)
    monkeypatch.undo()
    assert going_on == [is_under_cap]
    assert head.evicted.entries == (1 if is_under_cap else 10)
    assert waiter.evicted.entries == 0
    head.leave()
    waiter.leave()
    for each in (mine, later):
        each.abandon()


@pytest.mark.parametrize("queue", ["none", "planted"])
def test_without_a_queue_who_waits_sleeps_and_looks_for_itself(directory, other, monkeypatch, queue):
    if queue == "none":
        monkeypatch.delattr("select.epoll")
    else:
        os.mkdir(directory.layout.room_queue)
    put(directory, b"k", b"x")  # or there would be room for all
    first, second = room_in(directory), room_in(other)
    assert first._is_head()
    slept, sleep = [], time.sleep

    def note(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            first.leave()
        sleep(min(seconds, 0.001))

    monkeypatch.setattr(time, "sleep", note)
    second.wait()
    assert len(slept) == 2
    assert has_a_head(directory)
    second.leave()


def test_a_writer_that_dies_while_the_head_waits_for_it_is_taken_for_dead(directory):
    """Its file is too young for that at first, and nothing else changes."""
    with FileStreamProgramCache(directory.layout.root, max_size_bytes=1000, lock_timeout_seconds=30.0) as cache:
        program = HEAD[: HEAD.index("room = ")] + RESERVE
        command = [sys.executable, "-c", program, directory.layout.root]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "reserved\n"
            writer.kill()
        cache["k"] = b"x" * 500
        assert cache["k"] == b"x" * 500
        assert cache.stats().dropped_writes == 0


def test_where_there_is_room_who_waits_behind_a_stopped_head_goes_on(directory, other, head):
    """Though others are at work: the page never stands still."""
    room = room_in(other, 10_000)  # beyond the test's own limit
    theirs = StagedEntry(directory, "ab" + "0" * 62, 800)
    theirs.reserve()
    assert room.make_room(1000, 500) in (True, False)
    theirs.abandon()
    ended = threading.Event()

    def work():
        number = 0
        while not ended.is_set():
            number += 1
            put(directory, b"%d" % (number % 3), b"x" * (number % 100))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        room.wait()
    finally:
        ended.set()
        worker.join(30)
    room.leave()


@pytest.mark.parametrize("shared", [True, False], ids=["threads-of-one-cache", "a-directory-each"])
def test_one_is_the_head_at_a_time(directory, shared):
    heads, met, done = [], [], []

    def work(number):
        mine = directory if shared else open_directory(directory.layout.root)
        queue = room_in(mine)
        while queue._head is None:  # for a loaded machine: patience may end
            queue.wait()
        heads.append(number)
        met.append(len(heads))
        os.listdir(directory.layout.root)  # lets another thread run, if the queue does
        heads.remove(number)
        queue.leave()
        if not shared:
            mine.close()
        done.append(number)

    run_threads(work, [(number,) for number in range(8)])
    assert sorted(done) == list(range(8))
    assert met == [1] * 8
    assert not has_a_head(directory)


@pytest.mark.slow
@pytest.mark.parametrize("timeout_seconds", [1.0, 30.0])
def test_nobody_waits_long_for_a_head_that_is_stopped(directory, head, timeout_seconds):
    with FileStreamProgramCache(
        directory.layout.root, max_size_bytes=1000, lock_timeout_seconds=timeout_seconds
    ) as cache:
        theirs = StagedEntry(directory, "ab" + "0" * 62, 800)
        theirs.reserve()
        # Given back while the put waits behind the head, or while it pauses afterwards.
        giver = threading.Timer(0.1, theirs.abandon)
        giver.start()
        cache["k"] = b"x" * 500
        giver.join()
        assert head.poll() is None
        assert has_a_head(directory)
        assert cache["k"] == b"x" * 500
        assert cache.stats().dropped_writes == 0


def test_the_killed_head_is_followed_by_the_next(directory, head):
    assert has_a_head(directory)
    head.kill()
    head.wait()
    assert not has_a_head(directory)


def test_a_write_that_is_dropped_leaves_the_queue(directory):
    put(directory, b"k", b"older")
    with FileStreamProgramCache(directory.layout.root, max_size_bytes=1000, lock_timeout_seconds=0.3) as cache:
        theirs = StagedEntry(directory, "ab" + "0" * 62, 800)
        theirs.reserve()
        cache[b"k"] = b"x" * 500
        assert cache.stats().dropped_writes == 1
        assert cache.get(b"k") is None
        assert not has_a_head(directory)
        theirs.abandon()


@pytest.mark.parametrize("obstacle", ["symlink for locks", "symlink for lockcache", "file", "nothing"])
def test_without_a_lock_everybody_tries_and_nothing_is_made_elsewhere(cache_path, tmp_path, obstacle):
    """In a directory that a group shares: another member may have planted what is in the way."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "locks").mkdir(parents=True)
    with contextlib.ExitStack() as closing:
        opened = [CacheDirectory(str(cache_path), 5.0, group=True) for _ in range(2)]
        for directory in opened:
            closing.callback(directory.close)
        layout = opened[0].layout
        if obstacle == "symlink for lockcache":
            os.rename(layout.own, tmp_path / "own")
            os.symlink(elsewhere, layout.own)
        elif obstacle == "nothing":
            os.rename(layout.root, tmp_path / "moved")
        else:
            os.rename(layout.locks, tmp_path / "locks")
            if obstacle == "file":
                open(layout.locks, "x").close()
            else:
                os.symlink(elsewhere / "locks", layout.locks)
        rooms = [room_in(directory) for directory in opened]
        for room in rooms:
            with contextlib.suppress(PlantedFolderError):  # of a symlink: then the write is dropped
                room.wait()
        for room in rooms:
            room.leave()
    assert os.listdir(elsewhere / "locks") == []


def test_past_its_deadline_a_head_ends_though_it_finds_more_to_evict(directory, monkeypatch):
    """Writers that come all the while fill what it frees: each of its passes finds something."""
    for number in range(20):
        put(directory, b"%d" % number, b"x" * 100)
    staged = StagedEntry(directory, "01" + "0" * 62, 2000)
    staged.reserve()
    passes = []

    def evict_one(directory, limit_bytes, **options):
        passes.append(limit_bytes)
        return evict_to_limit(directory, directory.usage().total_bytes() - 1, should_stop=options["should_stop"])

    monkeypatch.setattr("lockcache.filestream.admission.evict_to_limit", evict_one)
    room = room_in(directory, 0.0)
    assert room.make_room(1000, 2000) is False
    assert len(passes) == 1
    room.leave()
    staged.abandon()

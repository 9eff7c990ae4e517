"""The queue of writers that found no room: one tries at a time, and nobody waits for one who never will."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.layout import Layout
from lockcache.filestream.roomqueue import RoomQueue
from lockcache.filestream.write import StagedEntry
from tests.unit.material import descriptors, open_directory

# A writer that is the head of the queue, says so, and never tries.
HEAD = """
import sys, time
from lockcache.filestream.layout import Layout
from lockcache.filestream.roomqueue import RoomQueue
queue = RoomQueue(Layout(sys.argv[1]))
assert queue.wait(time.monotonic() + 30)
print("head", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def layout(cache_path):
    open_directory(cache_path).close()
    return Layout(str(cache_path))


@pytest.fixture
def head(layout):
    """Another process that is the head, and was stopped."""
    with subprocess.Popen(
        [sys.executable, "-c", HEAD, layout.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "head\n"
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def soon() -> float:
    return time.monotonic() + 30


def test_all_of_them_become_the_head_one_after_the_other(layout):
    tried = []

    def work(number):
        queue = RoomQueue(layout)
        assert queue.wait(soon())
        tried.append(number)
        queue.leave()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(tried) == list(range(8))


def test_the_head_stays_it_until_it_leaves(layout):
    first, second = RoomQueue(layout), RoomQueue(layout)
    assert first.wait(soon())
    assert first.wait(soon())
    assert not second.wait(time.monotonic() + 0.05), "there is no time left to try"
    first.leave()
    assert second.wait(soon())
    second.leave()


def test_where_the_deadline_is_past_there_is_no_other_try(layout):
    queue = RoomQueue(layout)
    assert not queue.wait(time.monotonic())
    queue.leave()
    other = RoomQueue(layout)
    assert other.wait(soon()), "who left in vain keeps nobody waiting"
    other.leave()


def test_nobody_waits_long_for_a_head_that_is_stopped(layout, head):
    with FileStreamProgramCache(layout.root, max_size_bytes=1000, lock_timeout_seconds=30.0) as cache:
        directory = open_directory(layout.root)
        theirs = StagedEntry(directory, "ab" + "0" * 62, 800)
        theirs.reserve()
        # Given back while the put waits behind the head, or while it pauses afterwards.
        waiter = threading.Timer(0.2, theirs.abandon)
        waiter.start()
        cache["k"] = b"x" * 500
        waiter.join()
        assert head.poll() is None
        assert cache["k"] == b"x" * 500
        assert cache.stats().dropped_writes == 0
        directory.close()


def test_the_killed_head_is_followed_by_the_next(layout, head):
    head.kill()
    head.wait()
    queue = RoomQueue(layout)
    assert queue.wait(soon())
    assert not RoomQueue(layout).wait(time.monotonic() + 0.01), "it is the head"
    queue.leave()


@pytest.mark.parametrize("obstacle", ["symlink", "file", "nothing"])
def test_without_a_lock_file_everybody_tries_and_nothing_is_made_elsewhere(layout, tmp_path, obstacle):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.rename(layout.locks, tmp_path / "locks")
    if obstacle == "symlink":
        os.symlink(elsewhere, layout.locks)
    elif obstacle == "file":
        open(layout.locks, "x").close()
    else:
        os.rename(layout.root, tmp_path / "moved")
    first, second = RoomQueue(layout), RoomQueue(layout)
    assert first.wait(soon())
    assert second.wait(soon())
    first.leave()
    second.leave()
    assert os.listdir(elsewhere) == []


def test_who_left_keeps_nothing_open(layout):
    before = descriptors()
    queue = RoomQueue(layout)
    assert queue.wait(soon())
    queue.leave()
    assert descriptors() == before

# SPDX-License-Identifier: Apache-2.0
"""Two processes and one directory: opening it at once, a stopped holder of a lock, and what each sees of the other."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import recency
from lockcache.filestream.disk.layout import entry_name
from tests.processes.crowd import HANG_SECONDS, crowd
from tests.processes.provable_values import Proof, prove, value_for

KEY = b"key"


def _hold_the_lock(path: str, held: Any) -> None:
    cache = FileStreamProgramCache(path)
    with cache._directory.locks[int(entry_name(KEY)[:2], 16)]:
        held.set()
        signal.pause()


def test_a_stopped_holder_of_a_lock_delays_no_reader_and_a_writer_drops_with_the_older_value(
    cache_path: Path,
) -> None:
    other = next(key for key in (b"%d" % n for n in range(3000)) if entry_name(key)[:2] == entry_name(KEY)[:2])
    cache = FileStreamProgramCache(cache_path, lock_timeout_seconds=0.2)
    cache[KEY] = value_for(KEY, 0, 0)
    cache[other] = value_for(other, 0, 0)
    held = multiprocessing.get_context("fork").Event()
    with crowd("fork", _hold_the_lock, [(str(cache_path), held)]) as holder:
        assert held.wait(HANG_SECONDS)
        [process] = holder.processes
        os.kill(process.pid, signal.SIGSTOP)
        assert os.waitpid(process.pid, os.WUNTRACED)[0] == process.pid
        for _ in range(100):
            assert prove(KEY, cache[KEY]) == (0, 0)
            assert prove(other, cache[other]) == (0, 0)
            assert cache.get(b"missing") is None
        cache[KEY] = value_for(KEY, 0, 1)
        assert cache.stats().dropped_writes == 1
        assert cache.get(KEY) is None, "the older value is not served once a newer write has returned"
        assert prove(other, cache[other]) == (0, 0), "only this key's"
        free = next(key for key in (b"%d" % n for n in range(9)) if entry_name(key)[:2] != entry_name(KEY)[:2])
        cache[free] = b"another shard is another lock"
        assert cache.stats().dropped_writes == 1
        # What was removed without the lock is accounted for until a reap finds this file.
        assert [path.stat().st_size for path in (cache_path / "tmp").iterdir()] == [0]
    # Now it is dead, and with it its lock.
    cache[KEY] = value_for(KEY, 0, 2)
    assert prove(KEY, cache[KEY]) == (0, 2)
    assert cache.stats().dropped_writes == 1
    cache.recount()
    assert cache.recount() == []


def test_a_writer_stopped_between_reserving_and_publishing_takes_no_others_lock_and_publishes_when_it_goes_on(
    cache_path: Path,
) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=20_000, lock_timeout_seconds=0.2)
    cache[KEY] = value_for(KEY, 0, 0)
    with crowd("fork", _put_and_stop_before_publishing, [(str(cache_path),)]) as writer:
        [process] = writer.processes
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert prove(KEY, cache[KEY]) == (0, 0)
        cache[KEY] = value_for(KEY, 0, 1)
        assert prove(KEY, cache[KEY]) == (0, 1)
        assert cache.recount() == [], "a living writer's reservation stays"
        for serial in range(30):
            cache[b"%d" % serial] = value_for(b"%d" % serial, 0, serial, 1000)
            assert cache.stats().bytes <= 20_000
        os.kill(process.pid, signal.SIGCONT)
        writer.results()
    # Last write wins: its write ended after this process's.
    assert prove(KEY, cache[KEY]) == Proof(7, 7)
    assert cache.recount() == []


def _put_and_stop_before_publishing(path: str) -> None:
    cache = FileStreamProgramCache(path)
    # Not within the lock: utime is the last call of a write that is made before it.
    utime = recency._utime

    def stop(*args: Any, **kwargs: Any) -> None:
        recency._utime = utime  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGSTOP)
        utime(*args, **kwargs)

    recency._utime = stop  # type: ignore[misc,assignment]
    cache[KEY] = value_for(KEY, 7, 7, 6000)
    assert cache.stats().dropped_writes == 0

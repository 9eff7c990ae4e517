"""Locks around a seed: one process makes or takes away a copy, and no removal comes in between.

Keeps invariant 4 (readers never wait): no reader takes either, and who is stopped with one stops only seeds.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import SHARDS, ProcessLock, ShardLocks

__all__ = ["all_shards", "seed_lock"]

# For a lock of a shard, with those before it held.
_SHARD_SECONDS: Final = 0.05


@contextlib.contextmanager
def seed_lock(directory: CacheDirectory, seconds: float) -> Iterator[None]:
    """Hold the lock of who makes a copy, or takes one away. Raises :class:`OSError`."""
    lock = ProcessLock(directory.layout.seed_lock, seconds, layout=directory.layout)
    hold = lock.hold(seconds)
    try:
        yield
    finally:
        hold.release()
        lock.close()


@contextlib.contextmanager
def all_shards(directory: CacheDirectory, seconds: float, *, needs_all: bool = True) -> Iterator[None]:
    """No removal comes in between: it would mark a copy that is not the one that is read from then on.

    A lock that somebody else has is waited for some milliseconds, and then all are given back for a while: who is
    stopped with one of them must not stop the writers of other shards. ``needs_all=False``: where so many files cannot
    be opened it is done without. Raises :class:`OSError`.
    """
    until = time.monotonic() + seconds
    locks = ShardLocks(directory.layout, seconds, is_shared=directory.is_shared)
    try:
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    for shard in range(SHARDS):
                        stack.callback(locks[shard].hold(_SHARD_SECONDS).release)
                    break
                except OSError as error:
                    stack.close()
                    if error.errno in (errno.EMFILE, errno.ENFILE) and not needs_all:
                        break
                    if not isinstance(error, LockTimeoutError) or time.monotonic() > until:
                        raise
                time.sleep(_SHARD_SECONDS)
            yield
    finally:
        for lock in locks.values():
            lock.close()

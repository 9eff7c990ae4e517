"""Locks around a seed: one process makes or takes away a copy, and no removal comes in between.

Keeps invariant 4 (readers never wait): no reader takes either lock, and a stopped holder of one delays only seeds.
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
    """Hold the lock for making or removing a copy. Raises :class:`OSError`."""
    lock = ProcessLock(directory.layout.seed_lock, seconds, layout=directory.layout)
    hold = lock.hold(seconds)
    try:
        yield
    finally:
        hold.release()
        lock.close()


@contextlib.contextmanager
def all_shards(directory: CacheDirectory, seconds: float, *, needs_all: bool = True) -> Iterator[None]:
    """Let no removal come in between: it would mark a copy that is no longer the one that is read.

    A lock that another process holds is waited for some milliseconds, and then all are released for a while: a stopped
    holder of one shard must not stop the writers of others. ``needs_all=False``: if so many files cannot be opened, the
    block runs without any. Raises :class:`OSError`.
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

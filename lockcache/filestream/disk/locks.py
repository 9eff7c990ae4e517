"""Shard locks: exclude threads and processes, survive fork, give up after a timeout.

Keeps invariant 4 (work under a lock is short, every wait is bounded, nobody waits for a second lock while holding one)
and 5 (a killed holder's lock falls: the kernel frees it). Built on ``filelock.lock_descriptor`` over a descriptor that
stays open: a pair costs 1 to 2 us, a ``FileLock`` object 67 us, and both contend on the same file. Not promised
(invariant 6): that a lock excludes anybody. On some network mounts it does not, and nothing but the exact cap and the
accounting may rest on it.

Lock order: a thread holds at most one shard lock at a time. The init lock is held without any shard lock, or outside
one: init, then one shard after the other. So is the lock of the queue for room (:mod:`.room`), which nobody needs.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import threading
import time
from types import TracebackType
from typing import Final

from filelock import lock_descriptor, unlock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk.folders import make_folder, open_or_create, refuse_symlink
from lockcache.filestream.disk.layout import Layout
from lockcache.fork import after_fork_in_child

__all__ = ["ProcessLock", "ShardLocks"]

# For writing: NFS refuses an exclusive flock on a read-only descriptor.
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# Waits between attempts. Critical sections last some 20 us, so the first wait is of that order; the last keeps 100
# waiters on a stuck lock under 1 % of a core. Drawn at random so that waiters do not come back together.
_FIRST_PAUSE_SECONDS: Final = 0.0001
_LONGEST_PAUSE_SECONDS: Final = 0.02

# Looked up once, for the write path.
_fstat = os.fstat


class ProcessLock:
    """An exclusive lock on one lock file. Not reentrant. ``with lock:`` waits up to ``timeout_seconds``.

    The lock file and its directory are made when missing, and never unlinked by us: whoever unlinks a lock file lets
    two holders in. If somebody else did (a user's ``rm -r``), the next acquisition notices that its file has no name
    any more and opens the new one.
    """

    __slots__ = ("__weakref__", "_fd", "_is_to_close", "_keeps_open", "_layout", "_threads", "path", "timeout_seconds")

    def __init__(self, path: str, timeout_seconds: float, *, layout: Layout | None = None) -> None:
        """``layout``: that of the cache in which the file is, if it is in one."""
        self.path = path
        self._layout = layout
        self.timeout_seconds = timeout_seconds
        self._fd = -1
        self._keeps_open = True
        self._is_to_close = False
        # flock does not exclude threads that share a descriptor.
        self._threads = threading.Lock()
        after_fork_in_child(self)

    def __enter__(self) -> None:
        self.acquire(self.timeout_seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self, timeout_seconds: float) -> None:
        """Take the lock, or raise :class:`LockTimeoutError` after ``timeout_seconds``.

        Raises :class:`FileNotFoundError` when the whole cache directory is gone, any other :class:`OSError` when the
        file cannot be opened. A file system that refuses to lock at all is a :class:`LockTimeoutError` that says so:
        going on without the lock would be a silent fall through.
        """
        if self.try_acquire():  # nearly always, and 1 us less than to begin with a deadline
            return
        deadline = time.monotonic() + timeout_seconds
        if not self._threads.acquire(timeout=timeout_seconds):
            raise LockTimeoutError(f"{self.path}: another thread held this lock for {timeout_seconds} s", self.path)
        try:
            self._wait_for_processes(timeout_seconds, deadline)
        except BaseException:
            self._threads.release()
            raise

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it; never waits."""
        if not self._threads.acquire(False):
            return False
        taken = False
        try:
            taken = self._try_process()
        finally:
            if not taken:
                self._threads.release()
        return taken

    def release(self) -> None:
        """Requires: this lock."""
        try:
            # Closing unlocks only where no other process has the descriptor: a fork may have come before we knew of it.
            unlock_descriptor(self._fd)
            if self._is_to_close or not self._keeps_open:
                self._close_locked()
        finally:
            self._threads.release()

    def is_lost(self) -> bool:
        """Whether the lock's path no longer leads to the file that is locked: it was deleted or replaced underneath.

        Whoever locks that path now gets another file, and the lock besides ours. Requires: this lock.
        """
        try:
            return not os.path.samestat(os.fstat(self._fd), os.stat(self.path, follow_symlinks=False))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return True
            raise

    def close(self) -> None:
        """Close the descriptor, at once or when who holds the lock releases it. The next acquisition opens it again."""
        self._is_to_close = True
        if self._threads.acquire(blocking=False):
            try:
                self._close_locked()
            finally:
                self._threads.release()

    def _wait_for_processes(self, timeout_seconds: float, deadline: float) -> None:
        if self._try_process():
            return
        pause = _FIRST_PAUSE_SECONDS
        while not self._try_process():
            left = deadline - time.monotonic()
            if left <= 0:
                raise LockTimeoutError(
                    f"{self.path}: another process held this lock for {timeout_seconds} s", self.path
                )
            time.sleep(min(left, pause * (0.5 + random.random())))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _try_process(self) -> bool:
        """Requires: the thread lock."""
        refusal = "the lock file is unlinked again and again"
        for _ in range(3):
            if self._fd < 0:
                self._fd = self._open()
                self._keeps_open = _is_in_lower_half(self._fd)
            try:
                if not lock_descriptor(self._fd, blocking=False):
                    return False
                if _fstat(self._fd).st_nlink:
                    return True
            except OSError as error:
                refusal = f"this file system refuses to lock ({error.strerror})"
            # Unlinked underneath us, or a stale NFS handle: who opens the path now gets another file.
            self._close_locked()
        raise LockTimeoutError(f"{self.path}: {refusal}", self.path)

    def _open(self) -> int:
        try:
            return open_or_create(self._layout, self.path, _FLAGS)
        except FileNotFoundError:
            make_folder(self._layout, os.path.dirname(self.path))
            return open_or_create(self._layout, self.path, _FLAGS)

    def _close_locked(self) -> None:
        self._is_to_close = False
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _after_fork_in_child(self) -> None:
        # The child shares the parent's open file, so that a lock either of them takes would let the other in, and a
        # thread of the parent may have held the thread lock. Closing here does not free the parent's lock.
        self._threads = threading.Lock()
        self._close_locked()

    def __del__(self) -> None:
        self._close_locked()


def _is_in_lower_half(fd: int) -> bool:
    # A directory has 256 locks, and a process may be allowed to open no more files than that. Half of the numbers is
    # enough for us; a lock above it is opened for each use (2 us more), and the numbers are left to others.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most == resource.RLIM_INFINITY or fd < most // 2


class _SharedShardLock(ProcessLock):
    """The lock of a shard whose folders the other members of a group may replace at any time.

    Who asks for it has looked at them, and is told of a symlink before anything is begun. It may come in the next
    microsecond all the same: what is done under the lock goes by descriptors (:class:`.folders.below`).
    """

    __slots__ = ("_folders", "_record_folders")

    def __init__(self, layout: Layout, shard: int, timeout_seconds: float) -> None:
        super().__init__(layout.lock(shard), timeout_seconds, layout=layout)
        self._folders = layout.own, layout.tmp, layout.entries, layout.entry_shard(shard)
        self._record_folders = layout.records, layout.record_shard(shard)

    def _try_process(self) -> bool:
        for folder in self._folders:
            refuse_symlink(folder)
        # Mostly there are no record files, and asking is cheaper than an exception. A dangling symlink leads nowhere.
        if os.access(self._record_folders[-1], os.F_OK, effective_ids=True):
            for folder in self._record_folders:
                refuse_symlink(folder)
        return super()._try_process()

    def _open(self) -> int:
        refuse_symlink(os.path.dirname(self.path))
        return super()._open()


class ShardLocks(dict[int, ProcessLock]):
    """The locks of a directory's shards, by number, each made when it is first asked for.

    That raises :class:`PlantedFolderError` where a symlink stands for a folder of the shard; in a directory that a
    group shares, each acquisition does.
    """

    def __init__(self, layout: Layout, timeout_seconds: float, *, is_shared: bool = False) -> None:
        super().__init__()
        self._layout = layout
        self._timeout_seconds = timeout_seconds
        self._is_shared = is_shared

    def __missing__(self, shard: int) -> ProcessLock:
        layout = self._layout
        for folder in (layout.entry_shard(shard), layout.record_shard(shard)):
            refuse_symlink(folder)
        lock = (
            _SharedShardLock(layout, shard, self._timeout_seconds)
            if self._is_shared
            else ProcessLock(layout.lock(shard), self._timeout_seconds, layout=layout)
        )
        # setdefault: of two threads that come here at once, both must get the same lock.
        return self.setdefault(shard, lock)

# SPDX-License-Identifier: Apache-2.0
"""Shard locks: exclude threads and processes, survive fork, give up after a timeout.

Keeps invariant 4 (readers never wait: work under a lock is short, every wait is bounded, nobody waits for a second
lock while holding one) and 5 (death is free: the kernel frees a killed holder's lock). Built on
``filelock.lock_descriptor`` over a descriptor that stays open: a pair costs 1 to 2 us, a ``FileLock`` object 67 us, and
both contend on the same file. Not promised (invariant 6, locks coordinate): that a lock excludes anybody. On some
network mounts it does not, and nothing but the exact cap and the accounting may rest on it.

Lock order: a thread holds at most one shard lock at a time. The directory's lock is held without any shard lock, or
outside one: directory, then one shard after the other. So is the lock of the queue for room (:mod:`.room`), which
nobody needs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import threading
import time
from operator import attrgetter
from types import TracebackType
from typing import Final

from filelock import lock_descriptor, unlock_descriptor

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk.descriptors import UPDATE, KeptDescriptor
from lockcache.filestream.disk.folders import refuse_symlink
from lockcache.filestream.disk.holds import Hold, Mark, OneHolder
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.mounts import is_fresh
from lockcache.filestream.disk.reach import BY_PATH
from lockcache.fork import after_fork_in_child

# Waits between attempts. Critical sections last some 20 us, so the first wait is of that order; the last keeps 100
# waiters on a stuck lock under 1 % of a core. Drawn at random so that waiters do not come back together.
_FIRST_PAUSE_SECONDS: Final = 0.0001
_LONGEST_PAUSE_SECONDS: Final = 0.02

# Looked up once, for the write path.
_fstat, _identify = os.fstat, attrgetter("st_dev", "st_ino")

# What was done under a lock file that was removed has ended after so long, unless its process was stopped.
_DOUBT_SECONDS: Final = 10.0

# Of a lock file that is unlinked each time before it is locked: a cleaner that purges all the time wins a few in a row.
_MOST_OPENS: Final = 10


class ProcessLock(OneHolder):
    """An exclusive lock on one lock file. Not reentrant.

    :meth:`hold` and :meth:`try_hold` return an owner, which gives the lock back however its holder is left: that is for
    a caller that does something in between. :meth:`acquire` and :meth:`release` are for long holds, like
    ``with lock:``, which waits up to ``timeout_seconds``: there this object is the owner.

    The lock file and its directory are made when missing, and never unlinked by us: a process that unlinks a lock file
    lets two holders in. If somebody else did (a user's ``rm -r``), the next acquisition notices that its file has no
    name any more and opens the new one; on a network file system, the first one a second or more after it was checked.

    Two may then have had the lock at once. So a file that was made in the place of another one says so for a while, by
    its length (:meth:`note_counted`), to all that take it: also where the holder of the older file never comes back.
    Not on network file systems, where the file is not looked at each time.
    """

    def __init__(self, path: str, timeout_seconds: float, *, layout: Layout | None = None) -> None:
        """``layout``: that of the cache in which the file is, if it is in one."""
        self.path = path
        self._layout = layout
        self.timeout_seconds = timeout_seconds
        self._file = KeptDescriptor()
        self._fd = -1
        # When the open file had its name, in monotonic seconds; None where that is checked each time.
        self._named_at: float | None = None
        # Where the kernel had the file when it was opened, on a network file system.
        self._path_seen = ""
        self._keeps_open = True
        self._is_to_close = False
        # Flock does not exclude threads that share a descriptor.
        self._holders, self._heirs = {}, {}
        self._hold: Hold | None = None
        #: Whether its file was found removed: another process may have had the lock as well, on a new file.
        self.was_removed = False
        #: Whether this object made the file: where that is not the first one, another was removed.
        self.was_made = False
        # Whether the file was just opened.
        self._is_new = False
        after_fork_in_child(self)

    def hold(self, timeout_seconds: float) -> Hold:
        """Take the lock, or raise :class:`LockTimeoutError` after ``timeout_seconds``.

        Raise after 25 ms if this thread has it: a signal handler is then interrupting the holder. Not at once: a thread
        that looks who has the lock keeps a holder that is gone alive meanwhile. Raises :class:`FileNotFoundError` when
        the whole cache directory is gone, any other :class:`OSError` when the file cannot be opened. A file system that
        refuses to lock is a :class:`LockTimeoutError` that says so: without the lock would be a silent fall through.
        """
        hold = self.try_hold()  # nearly always, and 1 us less than to begin with a deadline
        if hold is not None:
            return hold
        deadline, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE_SECONDS
        while (hold := self.try_hold()) is None:
            left = deadline - time.monotonic()
            if left <= 0 or pause == _LONGEST_PAUSE_SECONDS:
                self._refuse_to_wait(left, timeout_seconds)
            time.sleep(min(left, pause * (0.5 + random.random())))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        return hold

    def try_hold(self) -> Hold | None:
        """Take the lock if nobody holds it; never waits."""
        hold = Hold(self)
        try:
            is_first = self._holders.setdefault(None, hold.mark) is hold.mark
            if (is_first or self._succeed(hold)) and self._try_process():
                return hold
        except BaseException:
            hold.release()
            raise
        hold.release()
        return None

    def acquire(self, timeout_seconds: float) -> None:
        """Take the lock like :meth:`hold`, until :meth:`release`."""
        self._hold = self.hold(timeout_seconds)

    def try_acquire(self) -> bool:
        """Take the lock like :meth:`try_hold`, until :meth:`release`. Returns whether it was taken."""
        hold = self.try_hold()
        if hold is not None:
            self._hold = hold
        return hold is not None

    def release(self) -> None:
        """Requires: this lock, by :meth:`acquire` or :meth:`try_acquire`."""
        hold = self._hold
        if hold is None:
            raise RuntimeError(f"{self.path}: released, but not held")
        hold.release()
        self._hold = None

    def __enter__(self) -> None:
        self.acquire(self.timeout_seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def is_lost(self) -> bool:
        """Returns whether the locked file was deleted or replaced, so that the lock's path no longer leads to it.

        A process that locks that path now gets another file, and the lock as well. Requires: this lock.
        """
        try:
            return not os.path.samestat(os.fstat(self._fd), os.stat(self.path, follow_symlinks=False))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return True
            raise

    def is_in_doubt(self) -> bool:
        """Returns :attr:`was_removed`, after a look at the file."""
        if not self.was_removed and self._fd >= 0:
            with contextlib.suppress(OSError):
                self.was_removed = not _fstat(self._fd).st_nlink
        return self.was_removed

    def note_counted(self) -> None:
        """Note that what the lock protects was counted again, after its file was removed. Requires: this lock.

        A process that had the older file may still be at work, and end without another look. So for ten seconds the
        file has a length (which takes no block), by which each process that opens it counts as well; the first one
        after that has the last word. Only the change of a process that was stopped for longer waits for a recount.
        """
        self.was_removed = self.was_made = False
        if self._named_at is not None:
            return
        with contextlib.suppress(OSError):
            status = _fstat(self._fd)
            if status.st_nlink != 1 or status.st_size > 1:
                return  # it has another name, or another use: a file of somebody was linked into the folder
            if not status.st_size:
                os.ftruncate(self._fd, 1)
            elif _is_settled(status):
                os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Close the descriptor, at once or when the holder releases the lock. The next acquisition opens it again."""
        # Set first: a holder that reads this after its release closes the descriptor, if we set it before.
        self._is_to_close = True
        self._close_if_free()

    def _refuse_to_wait(self, left_seconds: float, timeout_seconds: float) -> None:
        mark = self._holders.get(None)
        holder = None if mark is None else mark()
        if holder is not None and holder.thread == threading.get_ident():
            raise LockTimeoutError(f"{self.path}: this thread itself holds this lock", self.path)
        if left_seconds <= 0:
            who = "process" if holder is None else "thread"
            raise LockTimeoutError(f"{self.path}: another {who} held this lock for {timeout_seconds} s", self.path)

    def give_back(self, mark: Mark) -> None:
        """Unlock, if the lock is the mark's. May be called twice. Requires: the holder of the mark lives."""
        if self._holders.get(None) is not mark:
            return
        # Closing unlocks only if no other process has the descriptor: a fork may have come before we knew of it. And a
        # lock that an interrupt may have left is released in any case.
        try:
            unlock_descriptor(self._fd)
        except (OSError, ValueError):  # -1 is a ValueError: nothing was opened, or its number was not noted
            self._close_locked()  # and the lock is gone with the number
        self._holders.pop(None)
        # Last: a thread that asks us to close while we have the lock sets the flag before this check.
        if self._is_to_close or not self._keeps_open:
            self._close_if_free()

    def _close_if_free(self) -> None:
        """Close the descriptor, unless another thread holds the lock, which then closes it after its release."""
        hold = Hold(self)
        try:
            if self._holders.setdefault(None, hold.mark) is hold.mark or self._succeed(hold):
                self._is_to_close, self._keeps_open = False, True
                self._close_locked()
        finally:
            hold.release()

    def _try_process(self) -> bool:
        """Requires: that this thread is the one of this process that has it."""
        refusal = "the lock file is unlinked again and again"
        for _ in range(_MOST_OPENS):
            fd = self._fd = self._fd if self._fd >= 0 else self._open()
            try:
                # Looked at first: it may be the number of a file of the program's by now, with a lock of its own, which
                # locking would take over and unlocking end. A file that is removed between the two is noticed the next
                # time, as is one that is removed later.
                if self._named_at is None:
                    status = _fstat(fd)
                    if _identify(status) == self._file.identity or self._file.is_own(status):
                        if not lock_descriptor(fd, blocking=False):
                            return False
                        if status.st_size or not status.st_nlink:
                            self._note_doubt(status)
                        self._is_new = False
                        if status.st_nlink:
                            return True
                elif _path_of(fd) == self._path_seen:  # which asks no server
                    is_locked = lock_descriptor(fd, blocking=False)
                    if self._had_name(fd, self._named_at):
                        return is_locked
                else:
                    self.was_removed = True  # or it is a file of the program's
            except OSError as error:
                refusal = f"this file system refuses to lock ({error.strerror})"
            # The file was unlinked, or this is a stale NFS handle: a process that opens the path now gets another file.
            self._close_locked()
        raise LockTimeoutError(f"{self.path}: {refusal}", self.path)

    def _note_doubt(self, status: os.stat_result) -> None:
        if not status.st_nlink or (status.st_size == 1 and (self._is_new or _is_settled(status))):
            self.was_removed = True

    def _had_name(self, fd: int, named_at: float) -> bool:
        if not is_fresh(named_at):
            asked_at = time.monotonic()
            status = _fstat(fd)
            if not self._file.is_own(status):
                return False
            if not status.st_nlink:
                self.was_removed = True
                return False
            self._named_at = asked_at
        return True

    def _open(self) -> int:
        # UPDATE: NFS refuses an exclusive flock on a read-only descriptor.
        reach = BY_PATH if self._layout is None else self._layout.reach
        self._named_at = time.monotonic() if self._layout is not None and self._layout.is_network else None
        self._file = KeptDescriptor()  # an interrupt may have come before the number of the older one was noted
        if self._named_at is None:
            self._is_new, self.was_made = True, not os.access(self.path, os.F_OK, effective_ids=True)
        try:
            reach.open_or_create(self.path, UPDATE, self._file)
        except FileNotFoundError:
            reach.make_folder(os.path.dirname(self.path))
            reach.open_or_create(self.path, UPDATE, self._file)
        fd = self._file.number
        self._keeps_open = _is_in_lower_half(fd)
        if self._named_at is not None:
            self._file.is_own(os.fstat(fd))  # while the client knows that from the opening
            self._path_seen = _path_of(fd)
        return fd

    def _close_locked(self) -> None:
        self._fd = -1
        self._file.close()

    def _after_fork_in_child(self) -> None:
        # The child shares the parent's open file, so that a lock either of them takes would let the other in, and a
        # thread of the parent may have had it. Closing here does not free the parent's lock.
        self._holders, self._heirs = {}, {}
        self._hold = None
        self._is_to_close = self.was_removed = False
        self._close_locked()


def _is_settled(status: os.stat_result) -> bool:
    """Returns whether a lock file that says that there was another one has said it for long enough."""
    return abs(time.time() - status.st_mtime) > _DOUBT_SECONDS


def _path_of(fd: int) -> str:
    """Returns where the kernel has the file of a descriptor; empty where it does not say."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _is_in_lower_half(fd: int) -> bool:
    # A directory has 256 locks, and a process may be allowed to open no more files than that. Half of the numbers is
    # enough for us; a lock above it is opened for each use (2 us more), and the numbers are left to others.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most == resource.RLIM_INFINITY or fd < most // 2


class ShardLocks(dict[int, ProcessLock]):
    """The locks of a directory's shards, by number, each made at its first use.

    That raises :class:`PlantedFolderError` where a symlink stands for a folder of the shard. Where a group shares the
    directory, a symlink may come in the next microsecond: what is done under the lock goes by descriptors
    (:mod:`.reach`).
    """

    def __init__(self, layout: Layout, timeout_seconds: float) -> None:
        super().__init__()
        self._layout = layout
        self._timeout_seconds = timeout_seconds

    def __missing__(self, shard: int) -> ProcessLock:
        layout = self._layout
        for folder in layout.shard_folders(shard)[:2]:
            refuse_symlink(folder)
        # setdefault: of two threads that come here at once, both must get the same lock.
        return self.setdefault(shard, ProcessLock(layout.lock(shard), self._timeout_seconds, layout=layout))

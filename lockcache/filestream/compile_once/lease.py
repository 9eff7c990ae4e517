# SPDX-License-Identifier: Apache-2.0
"""Leases: which of the processes that miss a key compiles it.

A lease is a kernel lock on a file of its own, which states the holder. Keeps invariant 5 (death is free): the kernel
frees it the moment its holder dies, also while the holder's children live (a forked child closes its copy). The file is
unlinked by the process that releases it, while it still holds the lock (on a network file system just after it, if the
entry is there), and a lock on a file without its name counts for nothing: so lease files do not pile up, and no two
that hold one lease compute. Not promised (invariant 6, locks coordinate): that a lease excludes anybody; where it does
not, more than one compiles, and all of them get right results.

:mod:`.turns` decides which process may take over from an overdue holder.

Lock order: a lease is held across ``compute``, with no shard lock; shard locks are taken inside it, by the store.
"""

from __future__ import annotations

import enum
import errno
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from filelock import lock_descriptor

from lockcache.filestream.accounting import folder_of, is_of
from lockcache.filestream.disk import (
    UPDATE,
    WRITE,
    KeptDescriptor,
    Layout,
    is_at,
    myself,
    opened,
    parse_json,
    read_small,
    ring,
)
from lockcache.fork import after_fork_in_child

_LARGEST_BYTES: Final = 4096
_PIDS: Final = 2**31
_TIMES_NS: Final = 2**63

# For how long after a computation that failed or a write that was dropped no caller waits for that key: neither errors
# nor, on a full disk, compilations must be serialized.
_FAILED_NS: Final = 10 * 10**9
# A holder unlinks its file; a process that had it open looks again. More than a few times in a row is not a race.
_ATTEMPTS: Final = 5
#: Each generation is a holder that had its whole time. After that many, all waiters should compile.
GENERATIONS: Final = 8


class Holder(NamedTuple):
    """The process that took a lease, as its file states."""

    host: str
    #: Host, boot and pid namespace; see :mod:`.disk.owners`.
    token: str
    pid: int
    label: str
    #: On the monotonic clock, which all processes with this token share.
    start_ns: int
    #: When the holder's computation failed or its write was dropped, so that there was nothing to wait for; else 0.
    failed_ns: int = 0
    #: The folder in which the lease was taken, as a state page states it: not that of a directory linked from there.
    folder: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether that was a moment ago."""
        return 0 <= time.time_ns() - self.failed_ns < _FAILED_NS


class _Locked(enum.Enum):
    """What became of an attempt to lock a lease file."""

    #: This process has it.
    HERE = enum.auto()
    #: Another one has it.
    ELSEWHERE = enum.auto()
    #: The file lost its name, and who asks next finds another one.
    NAMELESS = enum.auto()
    #: This process had it, and finds that there is a lease of the next generation.
    TAKEN_OVER = enum.auto()


class LeaseTurn:
    """One caller's turn to compute a key, or before that its wish for it. It ends by :meth:`end`; dying does the same.

    While it holds the key's lease, others wait. Without one it is a turn for which nobody waits.
    """

    __slots__ = ("__weakref__", "_failed_ns", "_file", "_held", "_joined", "_layout", "_path", "_turns",
                 "after_failure", "generation", "has_begun", "name", "other")  # fmt: skip

    def __init__(self, layout: Layout, name: str, turns: Turns) -> None:
        """``turns``: the wishes and turns of the caller's thread, of which this is one from now on."""
        self._layout = layout
        self.name = name
        #: Of the lease that is asked for: each takeover from an overdue holder is one more.
        self.generation = 0
        #: The holder that had the lease when it was asked for last in vain; ``None`` if it wrote no record yet.
        self.other: Holder | None = None
        self._path = ""
        # The record that was written, while the lease is held. The thread that takes it out releases the lease: two
        # threads may end one turn, and what the second wrote to that descriptor would go into another file.
        self._held: list[Holder] = []
        self._file = KeptDescriptor()
        self._joined: Callable[[bool], object] | None = None
        #: Whether the turn before it failed a moment ago, so that nobody waits for this one.
        self.after_failure = False
        self._failed_ns = 0
        #: Whether its thread is in ``compute``, so that it would wait for itself if it asked for the entry again.
        self.has_begun = False
        # Before the lease is asked for: a signal handler of this thread that wants it too would wait for itself.
        self._turns = turns
        turns[name] = self
        # Before the file is locked: a child forked in between would share the lock, and could outlive us with it.
        after_fork_in_child(self)

    @property
    def is_held(self) -> bool:
        """Whether it holds the key's lease."""
        return bool(self._held)

    def take(self, label: str) -> bool:
        """Take the lease, unless another caller holds it; never waits. Returns whether it is held here.

        Raises :class:`OSError` where leases cannot be had (a read-only directory, a file system without locks).
        """
        left = _ATTEMPTS
        while True:
            locked = _Locked.NAMELESS
            try:
                locked = self._lock(label)
            except OSError as error:
                # NFS 3: its last holder unlinked the file after it was opened here.
                if error.errno != errno.ESTALE or left == 1:
                    raise
            finally:
                if not self._held:
                    self._file.close()
            if locked is _Locked.TAKEN_OVER:
                self.generation += 1
            elif locked is _Locked.NAMELESS and left > 1:
                left -= 1
            else:
                return locked is _Locked.HERE

    def pass_failure_on(self) -> None:
        """Release the lease after a failure, and let those who come compute at once, as this one does."""
        self.release(failed_ns=self._failed_ns)

    def begin(self) -> None:
        """State that its thread is in ``compute`` from now on."""
        self._turns[self.name] = self
        self.has_begun = True

    def join(self, end: Callable[[bool], object]) -> None:
        """Call ``end(failed)`` when this turn ends: a turn of more than this directory, for the same computation."""
        self._joined = end

    def end(self, failed: bool = False, *, was_stored: bool = False, was_dropped: bool = False) -> None:
        """End the turn and let the next caller in. May be called twice.

        ``failed``: the computation failed, so that those who waited need not wait for each other. ``was_dropped``: its
        write was, so that nobody needs to. ``was_stored``: the entry is there, and the next holder computes nothing.
        """
        self.has_begun = False
        if self._turns.get(self.name) is self:
            self._turns.pop(self.name, None)
        if self._held:
            layout = self._layout
            leaves_note = was_dropped or (failed and layout.hosts.may_hear(layout.bell(self.name)))
            self.release(failed_ns=time.time_ns() if leaves_note else 0, is_published=was_stored)
        joined, self._joined = self._joined, None
        if joined is not None:
            joined(failed)

    def release(self, *, failed_ns: int = 0, is_published: bool = False) -> None:
        """Release the lease and let the next caller in; the turn goes on. ``failed_ns``: when it, or its write, failed.

        ``is_published``: the entry is there, so that the next holder of the lease finds it and computes nothing.
        """
        holder: Holder | None = None
        try:
            holder = self._held.pop()
            fd = self._file.number
            if not self._file.is_own(status := os.fstat(fd)):
                return  # the program closed it, and the lock with it; the number is that of a file of its own
            if failed_ns:
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps({**holder._asdict(), "failed_ns": failed_ns}).encode(), 0)
            elif is_at(status, self._path):
                if is_published and self._layout.hosts.keep_what_is_open:
                    # Else it is renamed and removed later, which is two calls more. Who locks the file in between finds
                    # the entry, nearly always.
                    self._file.close()
                self._layout.reach.unlink(self._path)
        except IndexError:
            return  # it was given back, or never taken
        except OSError:
            # The directory is gone or full: closing frees the lock anyway, and a file that stays is reaped.
            return
        finally:
            if holder is not None:
                if self._file.number >= 0:
                    self._file.close()
                bell = self._layout.bell(self.name)
                # Nearly always nobody waits. Who makes a bell after this look sees that the lease has fallen.
                if os.access(bell, os.F_OK, effective_ids=True):
                    ring(self._layout, bell)

    def _lock(self, label: str) -> _Locked:
        """Lock the file of this generation and write our record."""
        layout, reach = self._layout, self._layout.reach
        self.after_failure, self._path = False, layout.lease(self.name, self.generation)
        try:
            # Not for reading too: an NFS server would lend us the file (a delegation), and we would give it back.
            reach.open_or_create(self._path, WRITE, self._file)
        except FileNotFoundError:
            reach.make_folder(layout.leases)
            reach.open_or_create(self._path, WRITE, self._file)
        fd = self._file.number
        if not lock_descriptor(fd, blocking=False):
            return self._leave_to_other(fd)
        status = os.fstat(fd)
        self._file.is_own(status)  # by which it is known again: a program may close all descriptors during its turn
        if not is_at(status, self._path):
            return _Locked.NAMELESS
        if status.st_nlink != 1:
            # A file that has another name belongs to another user: it must not be written to, only its name here is
            # removed.
            reach.unlink(self._path)
            return _Locked.NAMELESS
        if status.st_size:
            self._read_previous()
            os.ftruncate(fd, 0)
        me = myself()
        holder = Holder(socket.gethostname(), me.host, me.pid, label[:200], time.monotonic_ns(), 0, folder_of(layout))
        # What a full disk cuts short is a record that says nothing.
        os.pwrite(fd, json.dumps(holder._asdict()).encode(), 0)
        self._held.append(holder)
        later = self.generation + 1
        if later < GENERATIONS and os.access(layout.lease(self.name, later), os.F_OK, effective_ids=True):
            # The overdue holder was taken over, and has failed since. The file of the takeover is enough to know: if
            # its holder is dead too, or had its write dropped, this caller gets that lease at once.
            self.release()
            return _Locked.TAKEN_OVER
        return _Locked.HERE

    def _read_previous(self) -> None:
        """See whether the holder that left the lease file behind failed: else it died."""
        previous = holder_of(self._layout, self.name, self.generation)
        if previous is not None and previous.has_failed:
            self.after_failure, self._failed_ns = True, previous.failed_ns

    def _leave_to_other(self, fd: int) -> _Locked:
        """Returns what :meth:`_lock` does for a file that another process has locked.

        A copy of a directory by hard links has the lease files of the other one: nobody in the copy waits for those.
        """
        self.other = holder = holder_of(self._layout, self.name, self.generation)
        if holder is None or not holder.folder or is_of(self._layout, holder.folder):
            return _Locked.ELSEWHERE
        if is_at(os.fstat(fd), self._path):
            self._layout.reach.unlink(self._path)  # only this name of it
        return _Locked.NAMELESS

    def _after_fork_in_child(self) -> None:
        # The lease is the parent's alone: the child's copy of the descriptor would keep it alive past the parent.
        self._held.clear()
        self._file.close()

    def __del__(self) -> None:
        if getattr(self, "_held", None):  # an interrupt may have cut __init__ short
            self.release()


#: The wishes and turns of one thread, by the entry's name.
Turns: TypeAlias = "weakref.WeakValueDictionary[str, LeaseTurn]"


def holder_of(layout: Layout, name: str, generation: int) -> Holder | None:
    """Returns the holder that the lease file states; ``None`` if there is no file or it is being written."""
    try:
        return _parse(read_small(layout, layout.lease(name, generation), _LARGEST_BYTES))
    except OSError:
        return None


def reap_lease(folder_fd: int, file: str) -> bool:
    """Remove a lease file if its holder died. Returns whether it had.

    By the open folder and a name in it, because a user who may plant a symlink could choose which files are removed.
    """
    try:
        lease = opened(file, UPDATE, dir_fd=folder_fd)
    except OSError:
        return False
    try:
        fd = lease.number
        if not lock_descriptor(fd, blocking=False):
            return False
        if not os.path.samestat(os.stat(file, dir_fd=folder_fd, follow_symlinks=False), os.fstat(fd)):
            return False
        os.unlink(file, dir_fd=folder_fd)
        return True
    except OSError:
        return False
    finally:
        lease.close()


def _parse(blob: bytes) -> Holder | None:
    try:
        holder = Holder(**parse_json(blob))
    except (ValueError, TypeError):
        return None
    if not _is_number(holder.folder, 2**64):
        return None
    times = (holder.start_ns, holder.failed_ns)
    texts = (holder.host, holder.token, holder.label)
    if not _is_number(holder.pid, _PIDS) or not all(_is_number(n, _TIMES_NS) for n in times):
        return None
    return holder if all(isinstance(t, str) for t in texts) else None


def _is_number(found: object, below: int) -> bool:
    """Returns whether a holder may have written this number into a record: arithmetic with others may overflow."""
    return isinstance(found, int) and 0 <= found < below

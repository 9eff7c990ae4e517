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

import errno
import json
import os
import socket
import time
from typing import Final, NamedTuple

from filelock import lock_descriptor

from lockcache.filestream.accounting import folder_of, is_of
from lockcache.filestream.disk import (
    UPDATE,
    Descriptor,
    Layout,
    myself,
    opened,
    parse_json,
    read_small,
    refuse_symlink,
    ring,
    write_all,
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


class Lease:
    """A lease that this process holds. ``release`` it; dying does the same."""

    __slots__ = ("__weakref__", "_file", "_held", "_layout", "_path", "previous")

    def __init__(self, layout: Layout, path: str) -> None:
        self._layout = layout
        self._path = path
        # The record that was written, while the lease is held. The thread that takes it out releases the lease: two
        # threads may end one turn, and what the second wrote to that descriptor would go into another file.
        self._held: list[Holder] = []
        #: The holder that left the lease file behind: it died or failed.
        self.previous: Holder | None = None
        self._file = Descriptor()
        # Registered before the file is locked: a child forked in between would share the lock, and could outlive us
        # with it.
        after_fork_in_child(self)

    def take(self, label: str) -> bool | None:
        """Lock the file and write our record. ``False``: another process holds it. ``None``: the file lost its name."""
        fd = self._open()
        if not lock_descriptor(fd, blocking=False):
            return self._leave_to_other(fd)
        status = os.fstat(fd)
        if not _is_at(status, self._path):
            return None
        if status.st_nlink != 1:
            # A file that has another name belongs to another user: it must not be written to, only its name here is
            # removed.
            self._layout.reach.unlink(self._path)
            return None
        if status.st_size:
            self.previous = _parse(os.pread(fd, _LARGEST_BYTES, 0))
            os.ftruncate(fd, 0)
        me = myself()
        holder = Holder(
            socket.gethostname(), me.host, me.pid, label[:200], time.monotonic_ns(), 0, folder_of(self._layout)
        )
        write_all(fd, _encode(holder))
        self._held.append(holder)
        return True

    def _leave_to_other(self, fd: int) -> bool | None:
        """Returns what :meth:`take` does for a file that another process has locked.

        A copy of a directory by hard links has the lease files of the other one: nobody in the copy waits for those.
        """
        holder = _parse(os.pread(fd, _LARGEST_BYTES, 0))
        if holder is None or not holder.folder or is_of(self._layout, holder.folder):
            return False
        if _is_at(os.fstat(fd), self._path):
            self._layout.reach.unlink(self._path)  # only this name of it
        return None

    def release(self, *, failed_ns: int = 0, is_published: bool = False) -> None:
        """Release the lease and let the next caller in. ``failed_ns``: when the computation or its write failed.

        ``is_published``: the entry is there, so that the next holder of the lease finds it and computes nothing.
        """
        holder: Holder | None = None
        try:
            holder = self._held.pop()
            fd = self._file.number
            if failed_ns:
                os.ftruncate(fd, 0)
                os.pwrite(fd, _encode(holder._replace(failed_ns=failed_ns)), 0)
            elif _is_at(os.fstat(fd), self._path):
                if is_published and self._layout.is_network:
                    self._file.close()  # NFS renames what is unlinked while it is open: two calls more
                self._layout.reach.unlink(self._path)
        except IndexError:
            return  # it was given back, or never taken
        except OSError:
            # The directory is gone or full: closing frees the lock anyway, and a file that stays is reaped.
            return
        finally:
            if holder is not None:
                self._file.close()
                ring(self._layout, _bell_of(self._path))

    def is_waited_for(self) -> bool:
        """Returns whether another caller may wait for this lease: on a network file system that is not known."""
        return self._layout.is_network or os.path.lexists(_bell_of(self._path))

    def _after_fork_in_child(self) -> None:
        # The lease is the parent's alone: the child's copy of the descriptor would keep it alive past the parent.
        self._held.clear()
        self._file.close()

    def _open(self) -> int:
        refuse_symlink(self._layout.own)
        refuse_symlink(self._layout.leases)
        try:
            self._layout.reach.open_or_create(self._path, UPDATE, self._file)
        except FileNotFoundError:
            self._layout.reach.make_folder(self._layout.leases)
            self._layout.reach.open_or_create(self._path, UPDATE, self._file)
        return self._file.number

    def __del__(self) -> None:
        if hasattr(self, "_file") and self._file.number >= 0:  # an interrupt may have cut __init__ short
            self.release()


def take_lease(layout: Layout, name: str, generation: int, label: str) -> Lease | None:
    """Returns the lease of ``name``, or ``None`` if somebody holds it. Never waits.

    Raises :class:`OSError` where leases cannot be had (a read-only directory, a file system without locks).
    """
    path = layout.lease(name, generation)
    for attempt in range(1, _ATTEMPTS + 1):
        lease = Lease(layout, path)
        taken: bool | None = False
        try:
            taken = lease.take(label)
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _ATTEMPTS:
                raise
            taken = None  # NFS 3: its last holder unlinked the file after it was opened here
        finally:
            if not taken:
                lease.release()
        if taken is not None:
            return lease if taken else None
    return None


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


def _bell_of(path: str) -> str:
    """Returns the path of the bell of a lease's key, from that of its file."""
    return f"{path.rpartition('.')[0]}.bell"


def _is_at(status: os.stat_result, path: str) -> bool:
    """Returns whether ``path`` leads to an open file. By inode: NFS keeps a link to what is unlinked while open."""
    try:
        return os.path.samestat(os.lstat(path), status)
    except FileNotFoundError:
        return False


def _encode(holder: Holder) -> bytes:
    return json.dumps(holder._asdict()).encode()


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

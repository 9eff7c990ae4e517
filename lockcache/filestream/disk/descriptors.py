# SPDX-License-Identifier: Apache-2.0
"""Descriptors that have an owner: closed once nothing refers to the owner, whatever an interrupt cut short.

Keeps invariant 5 (death is free) for interrupts: an exception that a signal handler raises between any two steps of
Python leaves no descriptor open, and so no lock held by one. ``fd = os.open(...)`` does not: between the call and the
assignment nothing holds the number. Here the number goes from the system call into its owner, and back out of it,
without a step of Python in which an interrupt could come. Not promised: that this holds while somebody keeps the
exception, whose traceback keeps the frames that had the owner.

Keeps invariant 7 (never take the job down) for ``close``, with one rule. The kernel frees the number and the lock
whatever it answers, so an error (EIO on NFS, once the server gave the lease away) says only that something written
through the descriptor may not have arrived. A writer that is about to publish needs to know:
:meth:`Descriptor.end_writing` raises. No other caller can do anything about it, and a caller's program must not be lost
over it: every other close is :meth:`Descriptor.close` or :func:`close_quietly`, by ``closerange``, which reports no
errors. A hit, for which that is 4 %, closes by ``close`` and drops the error.

A program may close all descriptors, as one that becomes a service does, and open files of its own under their numbers.
So a descriptor that is kept between calls (:class:`KeptDescriptor`) knows its file, and is forgotten, not closed, once
its number leads to another one.

Keeps invariants 3 (hard cap) and 5 (death is free) across fork (:func:`close_inherited`): a child that kept the
descriptor of an entry would keep its blocks on disk after its eviction, for as long as it lives (seen: 80 children, 11
times the cap), that of a staged file its lock, by which others take the writer for alive, and that of a queue a place
in it. Such descriptors are found in the process's own table, because a thread of the parent may have been anywhere in
``open`` when the fork came. Where there is no such table (not Linux), nothing is closed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress, repeat
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lockcache.filestream.disk.layout import Layout


# The flags for opening files that others could have planted: through no symlink, and without waiting for a FIFO in
# their place. By O_NOFOLLOW with O_NONBLOCK a forked child recognizes what it inherited (:func:`close_inherited`).
_CAREFULLY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
READ: Final = os.O_RDONLY | _CAREFULLY
WRITE: Final = os.O_WRONLY | _CAREFULLY
UPDATE: Final = os.O_RDWR | _CAREFULLY
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
#: With it, reading does not count as a use of the file. Only its owner may ask for that (else EPERM).
NOATIME: Final[int] = getattr(os, "O_NOATIME", 0)
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_NEXT: Final = (1).__add__
_TABLE: Final = "/proc/self/fd"
_HAS_TABLE: Final = os.path.isdir(_TABLE)

# The wait for a kernel's lease on a file: a client of an NFS server answers within milliseconds.
_LEASE_SECONDS: Final = 1.0
_BETWEEN_OPENS_SECONDS: Final = 0.005


class Descriptor:
    """Owns one open descriptor, or none yet. ``with`` gives its number and closes it."""

    __slots__ = ("__del__", "__dict__")

    #: Not a method, in which an interrupt could come and be lost: the interpreter calls what stands in the slot.
    __del__: Callable[[], object]

    #: The descriptor's number; -1 while there is none.
    number = -1
    _numbers: Sequence[int] = ()
    # The number again, until a caller takes it to close it: so it is closed once, however often close is called.
    _left: Iterator[int] = iter(())

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Open like :func:`os.open`. Requires: nothing is open."""
        numbers: list[int] = []
        self._numbers = numbers
        self._left = left = iter(numbers)
        self.__del__ = partial(deque, map(os.closerange, left, map(_NEXT, numbers)), 0)
        call = os.open if dir_fd is None else partial(os.open, dir_fd=dir_fd)
        try:
            numbers.extend(map(call, (path,), (flags,), (mode,)))
        except BlockingIOError:
            if flags & os.O_ACCMODE == os.O_RDONLY:
                raise
        if not numbers:
            _open_once_given_up(numbers, lambda: map(call, (path,), (flags,), (mode,)))
        self.number = number = numbers[0]
        return number

    def close(self) -> None:
        """Close it. Does nothing when it is closed. Raises nothing."""
        if self._numbers:
            try:
                deque(map(os.closerange, self._left, map(_NEXT, self._numbers)), 0)
            finally:
                self._numbers, self.number = (), -1

    def end_writing(self) -> None:
        """Close like :meth:`close`, but raise :class:`OSError` where something written may not have arrived."""
        try:
            deque(map(os.close, self._left), 0)
        finally:
            self._numbers, self.number = (), -1

    def __enter__(self) -> int:
        return self._numbers[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class KeptDescriptor(Descriptor):
    """A descriptor that stays open between calls, and notices that the program closed it and has the number now."""

    __slots__ = ()

    #: Device and inode of the file that was opened, once :meth:`is_own` was asked.
    identity: tuple[int, int] | None = None

    def is_own(self, status: os.stat_result) -> bool:
        """Returns whether ``status``, that of the number now, is that of the file that was opened: of the first call.

        Another file's number is forgotten: it is the program's, and the next use opens the file again.
        """
        found = status.st_dev, status.st_ino
        if self.number < 0:
            return False  # it was forgotten before: whose the number is by now is not asked again
        if self.identity is None:
            self.identity = found
            # When the owner is dropped, it is closed unless another file has the number by then, or nothing: that is
            # asked by the number's name, because a call with a number that nothing has is an error.
            numbers = self._numbers
            names = map(f"{_TABLE}/{{}}".format, numbers)
            there = compress(numbers, map(os.access, names, repeat(os.F_OK)) if _HAS_TABLE else repeat(True))
            is_same = map(found.__eq__, map(attrgetter("st_dev", "st_ino"), map(os.fstat, there)))
            self.__del__ = partial(deque, map(os.closerange, compress(self._left, is_same), map(_NEXT, numbers)), 0)
        if found == self.identity:
            return True
        self.forget()
        return False

    def close(self) -> None:
        if self._numbers and self.identity is not None:
            try:
                self.is_own(os.fstat(self._numbers[0]))
            except OSError as error:
                if error.errno == errno.EBADF:
                    self.forget()
        super().close()
        self.identity = None

    def trust_number(self) -> None:
        """Have an owner that is dropped close the number without a look: a server does not say what it leads to."""
        self.__del__ = partial(deque, map(os.closerange, self._left, map(_NEXT, self._numbers)), 0)

    def forget(self) -> None:
        """Have no descriptor, and leave the number to whom it belongs now."""
        deque(self._left, 0)
        self._numbers, self.number, self.identity = (), -1, None


def opened(name: str, flags: int, *, dir_fd: int | None = None) -> Descriptor:
    """Open a file: ``with opened(name, flags, dir_fd=folder_fd) as fd``. Raises :class:`OSError`."""
    descriptor = Descriptor()
    descriptor.open(name, flags, dir_fd=dir_fd)
    return descriptor


def opening(path: str, flags: int, dir_fd: int | None = None) -> Iterator[int]:
    """Returns what opens a file once it is unpacked: ``[fd] = opening(path, flags)``.

    Not ``fd = os.open(path, flags)``: an interrupt comes behind a call of Python's, before what it returned has a name.
    This call is ``map``'s, and behind an unpacking none comes. For hot paths and ``try`` blocks of one screen: an owner
    (:class:`Descriptor`) costs ten times the 0.1 us of it.
    """
    return map(os.open if dir_fd is None else partial(os.open, dir_fd=dir_fd), (path,), (flags,))


def close_quietly(fd: int) -> None:
    """Close a descriptor that has no owner. Raises nothing."""
    os.closerange(fd, fd + 1)


def _open_once_given_up(numbers: list[int], opening: Callable[[], Iterator[int]]) -> None:
    """Open a file whose lease another process, such as an NFS server, was just asked to give up.

    Nothing reports when that is done, and an open that waits for it may wait for 45 s. Raises :class:`BlockingIOError`.
    """
    until = time.monotonic() + _LEASE_SECONDS
    while not numbers:
        time.sleep(_BETWEEN_OPENS_SECONDS)
        try:
            numbers.extend(opening())
        except BlockingIOError:
            if time.monotonic() > until:
                raise


# The flags by which lockcache opens entries and staged files, and hardly any other program: a user's own file in this
# directory stays open.
_OURS: Final = os.O_NOFOLLOW | os.O_NONBLOCK
_SHARD_DIGITS: Final = 2


def close_inherited(layout: Layout) -> None:
    """Close what this process, a child just forked, has of its parent's entries, staged files, locks and leases."""
    try:
        numbers = os.listdir(_TABLE)
    except OSError:
        return
    for number in numbers:
        with contextlib.suppress(OSError):  # the listing's own descriptor, and others that are gone by now
            if _is_ours(layout, int(number), os.readlink(f"{_TABLE}/{number}")):
                close_quietly(int(number))


def _is_ours(layout: Layout, fd: int, path: str) -> bool:
    # Of locks and leases those that no object owns yet: a thread of the parent was in the midst of opening them. With
    # them the child would hold what the parent locks, also after its death.
    folder, _, name = path.removesuffix(" (deleted)").rpartition("/")
    is_lock = folder == layout.locks and (len(name) == _SHARD_DIGITS or name in ("directory", "room"))
    folders = layout.entries, layout.records, layout.tmp, layout.leases
    if not (is_lock or path.startswith((*(f"{each}/" for each in folders), f"{layout.room_lock}."))):
        return False
    return fcntl.fcntl(fd, fcntl.F_GETFL) & _OURS == _OURS

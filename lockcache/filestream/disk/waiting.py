# SPDX-License-Identifier: Apache-2.0
"""Waiting between processes: for a bell that all waiters hear, for a place in a queue, for the death of a process.

A waiter that polls pays 70 us for each wake-up, and two hundred of them take the processors from the compiler that they
wait for. So waiters sleep in the kernel, at a FIFO that they make and open: the bell.

A bell wakes in one of two modes. For all: the holder of a turn opens the FIFO for writing, removes its name and closes
it, which wakes every reader at once (:func:`ring`). Where nobody waits, this is one call that finds no file. A byte
that is written in between says to all who listened then, and to nobody else, that they have what they wait for. In a
queue: for what only one waiter can have at a time, since to wake two hundred for each of them would cost as much as to
poll. Each byte that is written to the FIFO wakes one waiter, the one that came first. A death rings no bell: the kernel
reports the death of a process on this host through a pidfd.

Not promised: any wake-up. A FIFO joins processes of one kernel only, a file system may have no FIFOs and a kernel no
pidfds, any process that may write to the directory may remove or ring a bell, and a process may die of the signal that
woke it. So each waiter also checks by itself, at a pace that depends on what wakes it and what a check costs
(:class:`Pace`). Keeps invariant 4 (readers never wait for locks) affordable: what waiters cost is bounded here.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import random
import select
import stat
import sys
import termios
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from lockcache.filestream.disk.descriptors import READ, UPDATE, WRITE, opening
from lockcache.filestream.disk.folders import share_file
from lockcache.filestream.disk.layout import Layout

# A waiter reads its byte as soon as it is woken.
_MOST_UNREAD_BYTES: Final = 16

_pidfd_open: Final[Callable[[int], int] | None] = getattr(os, "pidfd_open", None)


class Pace(NamedTuple):
    """The pause between a waiter's looks: a share of the time that it has waited so far, within bounds."""

    shortest_seconds: float
    look_share: float
    longest_look_seconds: float
    # To ask for a lease costs more than to look.
    ask_share: float
    longest_ask_seconds: float

    def look_after(self, waited_seconds: float) -> float:
        """Returns the seconds until the next look."""
        return max(min(waited_seconds * self.look_share, self.longest_look_seconds), self.shortest_seconds)

    def ask_after(self, waited_seconds: float) -> float:
        """Returns the seconds until the lease is asked for again."""
        return max(min(waited_seconds * self.ask_share, self.longest_ask_seconds), self.shortest_seconds)


# Waking up and looking take 40 us of a busy processor's time or 200, by how cold its caches are; asking takes twice
# that. A waiter that its bell wakes, and the death of the process that it waits for, looks only for what rings no bell
# (a plain put, a bell that was removed): three times a second, 0.1 to 0.7 ms of processor time.
WOKEN: Final = Pace(
    shortest_seconds=0.05, look_share=0.5, longest_look_seconds=0.5, ask_share=1.0, longest_ask_seconds=2.0
)
# A waiter that nothing wakes, since that process is on another host or in another container, must find everything by
# itself.
LOCAL: Final = Pace(
    shortest_seconds=0.0005, look_share=0.1, longest_look_seconds=0.06, ask_share=0.5, longest_ask_seconds=0.25
)
# The same on a network file system, where a look is two calls to a server that a thousand ranks may share, and asking
# for the lease six: less than four calls a second after the first second.
REMOTE: Final = Pace(
    shortest_seconds=0.005, look_share=0.5, longest_look_seconds=1.5, ask_share=1.0, longest_ask_seconds=4.0
)


class _Descriptor(io.FileIO):
    """A descriptor that is closed with its object, without a word."""

    def __del__(self) -> None:
        self.close()


def ring(layout: Layout, path: str, *, is_queue: bool = False, is_granted: Callable[[], bool] | None = None) -> None:
    """Wake all listeners, and remove the bell; of a queue, wake the first. Raises nothing: a waiter that is not woken
    checks by itself.

    ``is_granted``: asked when nobody can begin to listen any more, and before anybody wakes. Where it returns true, all
    listeners find it with the wake-up (:attr:`Waiter.is_granted`).

    Where nobody waits, this is one call that finds no file. A file of another kind, which somebody planted, is removed.
    """
    if not os.path.lexists(path):
        return
    with contextlib.suppress(OSError):
        try:
            bell = layout.reach.open(path, WRITE)
        except OSError:
            layout.reach.unlink(path)  # nobody has it open for reading
            return
        with bell as fd:
            if not is_queue:
                layout.reach.unlink(path)  # before they wake: a listener that goes on waiting needs a new one
                if is_granted is not None and _is_fifo(fd) and is_granted():
                    os.write(fd, b".")  # which nobody reads: it is there for all
            # Unread bytes are of waiters that were woken and are stopped, or gone.
            elif _is_fifo(fd) and _unread_bytes(fd) < _MOST_UNREAD_BYTES:
                os.write(fd, b".")


def _is_fifo(fd: int) -> bool:
    return stat.S_ISFIFO(os.fstat(fd).st_mode)


def _unread_bytes(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


class Waiter:
    """One who waits: sleeps until its bell rings, a process dies, or it is time to look by itself."""

    __slots__ = (
        "_awaits_death",
        "_began",
        "_bell",
        "_is_queue",
        "_layout",
        "_path",
        "_pidfd",
        "_poll",
        "has_bell",
        "is_granted",
    )

    def __init__(self, layout: Layout, bell: str, *, is_queue: bool = False, awaits_death: bool = False) -> None:
        """``is_queue``: a wake-up is for one waiter at a time, in the order in which they began to listen.

        ``awaits_death``: no bell rings if a process dies, so this looks often unless it can :meth:`watch` that process.
        """
        self._layout, self._path = layout, bell
        self._is_queue, self._awaits_death = is_queue, awaits_death
        self._began = time.monotonic()
        self._bell: _Descriptor | None = None
        self._pidfd: _Descriptor | None = None
        # Of these two; made again when one of them is another. A forked child may have them open, so that closing one
        # would not take it out.
        self._poll: select.epoll | None = None
        #: Whether there ever was a bell of which somebody may have to remove the name.
        self.has_bell = False
        #: Whether the one who rang the bell that ended the last sleep said that all who listened have what they wait
        #: for.
        self.is_granted = False

    @property
    def waited_seconds(self) -> float:
        """The time since this began to wait."""
        return time.monotonic() - self._began

    @property
    def pace(self) -> Pace:
        """How often to look, by what will end a sleep as far as that can be known."""
        if self._bell is not None and (self._pidfd is not None or not self._awaits_death):
            return WOKEN
        return REMOTE if self._layout.is_network else LOCAL

    def listen(self) -> bool:
        """Listen for the bell, which is made if it is missing. Does nothing where there can be none.

        Returns whether it was not heard before, so that the waiter looks once more before it sleeps.
        """
        if self._bell is not None and _has_name(self._bell):
            return False
        self._bell = self._poll = None
        if not hasattr(select, "epoll"):
            return False
        with contextlib.suppress(OSError):
            # A queue for writing too: else the kernel reports a hang-up whenever its last writer has closed it.
            self._bell = _open_fifo(self._layout, self._path, UPDATE if self._is_queue else READ)
            if self._is_queue and self._bell is not None:
                self._polled()  # its place is from now on
        self.has_bell |= self._bell is not None
        return self._bell is not None

    def watch(self, pid: int | None) -> None:
        """Wake when this process dies; ``None``: watch no process."""
        self._pidfd = self._poll = None
        if _pidfd_open is None or pid is None:
            return
        # It may be dead already, or this may be no pid, or there are none here: then we look for ourselves.
        with contextlib.suppress(OSError, OverflowError, ValueError):
            # One call of C: between two of Python an interrupt could lose the descriptor.
            self._pidfd = next(map(_Descriptor, map(_pidfd_open, (pid,))))

    def sleep(self, until: float) -> bool:
        """Sleep until an event, the next look, or ``until`` (monotonic seconds). Returns whether an event ended it.

        Each event does so once; in a queue, for one waiter.
        """
        now = time.monotonic()
        self.is_granted = False  # what an earlier bell said is over
        seconds = self.pace.look_after(now - self._began) * (0.5 + random.random() / 2)
        seconds = max(0.0, min(seconds, until - now))
        if self._bell is None and self._pidfd is None:
            time.sleep(seconds)
            return False
        ready = dict(self._polled().poll(seconds))
        if self._pidfd is not None and self._pidfd.fileno() in ready:
            self._pidfd = self._poll = None
        if self._bell is not None and self._bell.fileno() in ready:
            if self._is_queue:
                return bool(self._bell.read(1))  # another waiter may have read it first
            self.is_granted = bool(ready[self._bell.fileno()] & select.EPOLLIN)
            self._bell = self._poll = None
        return bool(ready)

    def _polled(self) -> select.epoll:
        if self._poll is None:
            poll = select.epoll()
            if self._bell is not None:
                # The kernel wakes one of the exclusive waiters, and begins with the one that registered first.
                poll.register(self._bell, select.EPOLLIN | (select.EPOLLEXCLUSIVE if self._is_queue else 0))
            if self._pidfd is not None:
                poll.register(self._pidfd, select.EPOLLIN)
            self._poll = poll
        return self._poll


def _has_name(bell: _Descriptor) -> bool:
    try:
        return os.fstat(bell.fileno()).st_nlink > 0
    except OSError:
        return False  # a stale handle of NFS


def _open_fifo(layout: Layout, path: str, flags: int) -> _Descriptor | None:
    """Open a FIFO, and make it if it is missing. Returns ``None`` where a file of another kind stands in its place."""
    parent, _, name = path.rpartition("/")
    with layout.reach.at(parent) as folder:
        is_new = True
        try:
            os.mkfifo(folder.at(name), 0o600, dir_fd=folder.fd)
        except FileExistsError:
            is_new = False
        if not stat.S_ISFIFO(folder.stat(name).st_mode):
            return None  # planted; of a folder a file object cannot be made, and its descriptor would stay open
        bell = next(map(_Descriptor, opening(folder.at(name), flags, folder.fd)))
        if not stat.S_ISFIFO(os.fstat(bell.fileno()).st_mode):
            return None
        if is_new and folder.fd is not None:
            share_file(bell.fileno())  # the next holder may be another member of the group
        return bell

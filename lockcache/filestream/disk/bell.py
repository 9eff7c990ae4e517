"""What wakes waiters: a bell that all hear, the death of a process, and a queue.

A waiter that polls pays for waking up (70 us), and two hundred of them take the processors from the compiler they wait
for. So they sleep in the kernel, at a FIFO that waiters make and open.

The bell is beside a lease file. Who releases the lease opens it for writing, removes its name and closes it, which
tells every reader at once. Where nobody waits that is one call which finds nothing. Death rings no bell: the kernel
tells it of a process on this host, by a pidfd.

The queue is for what only one can have at a time, or only a few: to wake two hundred for each of them would cost as
much as to poll. Each byte that is written wakes one, who came first. Where there is enough for all who wait, it can be
granted to them at once, by a bell of their own: whoever is told so need not look again, by when others may have taken
it.

Not promised: any of it. A FIFO joins processes of one kernel only, there may be no FIFOs or no pidfds here, whoever may
write to the directory may remove or ring a bell, and who was woken may die of it. So whoever sleeps also looks for
itself, only less often.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import stat
import sys
import termios
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final

from lockcache.filestream.disk.folders import below, open_below, refuse_symlink, share_file, unlink_below
from lockcache.filestream.disk.layout import Layout

__all__ = ["Queue", "Sleeper", "Woken", "bell_of", "grant", "ring", "wake_next"]

_LISTEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# For writing too: with nobody who writes, the kernel would say again and again that the last one is gone.
_QUEUE_UP: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_RING: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# Who is woken reads its byte at once.
_MOST_WOKEN: Final = 16

_pidfd_open: Final[Callable[[int], int] | None] = getattr(os, "pidfd_open", None)


class _Descriptor(io.FileIO):
    """A descriptor that is closed with its object, without a word."""

    def __del__(self) -> None:
        self.close()


def bell_of(lease_path: str) -> str:
    """Returns the path of a key's bell: one for all generations of its lease."""
    return f"{lease_path.rpartition('.')[0]}.bell"


def ring(layout: Layout, path: str) -> None:
    """Wake whoever listens, and remove the bell. Raises nothing: who is not woken looks for itself."""
    with contextlib.suppress(OSError):
        refuse_symlink(os.path.dirname(path))
        try:
            opened = open_below(layout, path, _RING)
        except FileNotFoundError:
            return  # nobody waits
        except OSError:
            unlink_below(layout, path)  # nobody listens any more, or this is no bell
            return
        with opened:
            unlink_below(layout, path)  # before they wake: who goes on waiting needs a new one


def wake_next(layout: Layout, path: str) -> None:
    """Wake the first of a :class:`Queue`; where there is none, remove its file. Raises nothing, as :func:`ring`."""
    with contextlib.suppress(OSError):
        refuse_symlink(os.path.dirname(path))
        try:
            opened = open_below(layout, path, _RING)
        except FileNotFoundError:
            return  # nobody waits
        except OSError:
            unlink_below(layout, path)  # nobody waits any more, or this is no queue
            return
        with opened as fd:
            # Something planted is not ours to write to. And where so many were woken that did not wake up yet, they are
            # stopped, or nobody is left who reads.
            if stat.S_ISFIFO(os.fstat(fd).st_mode) and _unread_bytes(fd) < _MOST_WOKEN:
                os.write(fd, b".")


def _unread_bytes(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def grant(layout: Layout, path: str, may_go_on: Callable[[], bool]) -> None:
    """Tell all who wait for it in a :class:`Queue` to go on, if they may. Raises nothing, as :func:`ring`.

    ``may_go_on`` is asked when nobody can join them any more: what is true then is true for each of them.
    """
    with contextlib.suppress(OSError):
        refuse_symlink(os.path.dirname(path))
        try:
            opened = open_below(layout, path, _RING)
        except FileNotFoundError:
            return  # nobody waits
        except OSError:
            unlink_below(layout, path)  # nobody waits any more, or this is no bell
            return
        with opened as fd:
            unlink_below(layout, path)
            # A byte that nobody takes out is seen by all of them. Who dies in front of this grants nothing.
            if may_go_on() and stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b".")


class Woken(Enum):
    """What ended a sleep in a :class:`Queue`."""

    BY_NOBODY = auto()
    #: It is the first of those who wait, and wakes the next one when it has, or no longer wants, what they wait for.
    IN_TURN = auto()
    #: What it waits for was granted to all who waited.
    BY_GRANT = auto()


class Queue:
    """A place among those who wait for the same: in the order in which they came, one at a time is woken."""

    __slots__ = ("_bell", "_bell_path", "_fifo", "_layout", "_path", "_poll")

    def __init__(self, layout: Layout, path: str, bell_path: str = "") -> None:
        """``bell_path``: at which :func:`grant` is heard too."""
        self._layout = layout
        self._path = path
        self._bell_path = bell_path
        self._fifo: _Descriptor | None = None
        self._bell: _Descriptor | None = None
        self._poll: select.epoll | None = None

    def join(self) -> bool:
        """Take a place, unless it has one. Whether it is a new one: what it waits for may have come meanwhile."""
        before = self._fifo, self._bell
        self._queue_up()
        self._listen()
        return (self._fifo, self._bell) != before

    def sleep(self, seconds: float) -> Woken:
        """Sleep for so long, or until it is woken. Requires: :meth:`join`."""
        if self._poll is None or self._fifo is None:
            time.sleep(seconds)
            return Woken.BY_NOBODY
        events = dict(self._poll.poll(seconds))
        if self._bell is not None:
            event = events.get(self._bell.fileno(), 0)
            if event & select.EPOLLIN:
                return Woken.BY_GRANT
            if event or not _has_name(self._bell):  # whoever would have granted it did not, or never will
                self._poll.unregister(self._bell)  # a forked child may have it open too
                self._bell = None
        # Or somebody else was quicker.
        return Woken.IN_TURN if self._fifo.fileno() in events and self._fifo.read(1) else Woken.BY_NOBODY

    def _queue_up(self) -> None:
        """At the end. Does nothing where there can be no queue."""
        if self._fifo is not None and _has_name(self._fifo):
            return
        self._fifo = self._bell = self._poll = None
        if not hasattr(select, "epoll"):
            return
        with contextlib.suppress(OSError):
            refuse_symlink(os.path.dirname(self._path))
            fifo = _open_fifo(self._layout, self._path, _QUEUE_UP)
            if fifo is not None:
                poll = select.epoll()
                # The kernel wakes one of those who ask for that, and begins with who asked first.
                poll.register(fifo, select.EPOLLIN | select.EPOLLEXCLUSIVE)
                self._fifo, self._poll = fifo, poll

    def _listen(self) -> None:
        if self._poll is None or self._bell is not None or not self._bell_path:
            return
        with contextlib.suppress(OSError):
            bell = _open_fifo(self._layout, self._bell_path, _LISTEN)
            if bell is not None:
                self._poll.register(bell, select.EPOLLIN)
                self._bell = bell


class Sleeper:
    """Sleeps until the bell rings, a process dies, or time is up."""

    __slots__ = ("_bell", "_layout", "_path", "_pidfd", "has_bell")

    def __init__(self, layout: Layout, path: str) -> None:
        self._layout = layout
        self._path = path
        self._bell: _Descriptor | None = None
        self._pidfd: _Descriptor | None = None
        #: Whether there ever was a bell of which somebody may have to remove the name.
        self.has_bell = False

    @property
    def is_woken(self) -> bool:
        """Whether both will wake it, as far as that can be known."""
        return self._bell is not None and self._pidfd is not None

    def listen(self) -> None:
        """Listen for the bell, which is made if it is missing. Does nothing where there can be none."""
        if self._bell is not None and _has_name(self._bell):
            return
        self._bell = None
        with contextlib.suppress(OSError):
            refuse_symlink(os.path.dirname(self._path))
            self._bell = _open_fifo(self._layout, self._path, _LISTEN)
            self.has_bell |= self._bell is not None

    def watch(self, pid: int) -> None:
        """Wake when this process dies."""
        self._pidfd = None
        if _pidfd_open is None:
            return
        # It may be dead already, or this may be no pid, or there are none here: then we look for ourselves.
        with contextlib.suppress(OSError, OverflowError, ValueError):
            # One call of C: between two of Python an interrupt could lose the descriptor.
            self._pidfd = next(map(_Descriptor, map(_pidfd_open, (pid,))))

    def ignore_deaths(self) -> None:
        """Watch no process."""
        self._pidfd = None

    def sleep(self, seconds: float) -> bool:
        """Whether it was woken. Each thing that wakes does so once."""
        heard = [each for each in (self._bell, self._pidfd) if each is not None]
        if not heard:
            time.sleep(seconds)
            return False
        poll = select.poll()
        for each in heard:
            poll.register(each, select.POLLIN)
        told = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._bell is not None and self._bell.fileno() in told:
            self._bell = None
        if self._pidfd is not None and self._pidfd.fileno() in told:
            self._pidfd = None
        return bool(told)


def _has_name(bell: _Descriptor) -> bool:
    try:
        return os.fstat(bell.fileno()).st_nlink > 0
    except OSError:
        return False  # a stale handle of NFS


def _open_fifo(layout: Layout, path: str, flags: int) -> _Descriptor | None:
    """Make it if it is missing; ``None`` where something else stands in its place."""
    with below(layout, path) as (folder_fd, name):
        is_new = True
        try:
            os.mkfifo(name, 0o600, dir_fd=folder_fd)
        except FileExistsError:
            is_new = False
        if not stat.S_ISFIFO(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
            return None  # planted; of a folder a file object cannot be made, and its descriptor would stay open
        bell = next(map(_Descriptor, map(partial(os.open, dir_fd=folder_fd), (name,), (flags,))))
        if not stat.S_ISFIFO(os.fstat(bell.fileno()).st_mode):
            return None
        if is_new and folder_fd is not None:
            share_file(bell.fileno())  # the next holder may be another member of the group
        return bell

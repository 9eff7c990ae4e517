"""Wake-ups between processes: a bell that all waiters hear, the death of a process, and a queue.

A waiter that polls pays 70 us for each wake-up, and two hundred of them take the processors from the compiler that they
wait for. So waiters sleep in the kernel, at a FIFO that they make and open.

A bell is a FIFO next to a lease file. The holder that releases the lease opens the FIFO for writing, removes its name
and closes it, which wakes every reader at once. Where nobody waits, this is one call that finds no file. A death rings
no bell: the kernel reports the death of a process on this host through a pidfd.

A queue is for what only one waiter, or a few, can have at a time: to wake two hundred for each of them would cost as
much as to poll. Each byte that is written to the queue's FIFO wakes one waiter, the one that came first. Where there is
enough for all waiters, it is granted to all of them at once, by a bell of the queue. A waiter that was granted it need
not check again, when processes that came later may have taken it.

Not promised: any wake-up. A FIFO joins processes of one kernel only, a file system may have no FIFOs and a kernel no
pidfds, any process that may write to the directory may remove or ring a bell, and a process may die of the signal that
woke it. So each waiter also checks by itself, less often.
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
from typing import Final

from lockcache.filestream.disk.descriptors import READ, UPDATE, WRITE, Descriptor, opening
from lockcache.filestream.disk.folders import refuse_symlink, share_file
from lockcache.filestream.disk.layout import Layout

# A waiter reads its byte as soon as it is woken.
_MOST_UNREAD_BYTES: Final = 16

_pidfd_open: Final[Callable[[int], int] | None] = getattr(os, "pidfd_open", None)


class _Descriptor(io.FileIO):
    """A descriptor that is closed with its object, without a word."""

    def __del__(self) -> None:
        self.close()


def bell_of(lease_path: str) -> str:
    """Returns the path of a key's bell: one for all generations of its lease."""
    return f"{lease_path.rpartition('.')[0]}.bell"


def ring(layout: Layout, path: str) -> None:
    """Wake all listeners, and remove the bell. Raises nothing: a listener that is not woken checks by itself."""
    with contextlib.suppress(OSError):
        bell = _open_to_wake(layout, path)
        if bell is not None:
            with bell:
                layout.reach.unlink(path)  # before they wake: a listener that goes on waiting needs a new one


def wake_next(layout: Layout, path: str) -> None:
    """Wake the first waiter of a :class:`Queue`. Raises nothing: a waiter that is not woken checks by itself."""
    with contextlib.suppress(OSError):
        queue = _open_to_wake(layout, path)
        if queue is not None:
            with queue as fd:
                # Unread bytes are of waiters that were woken and are stopped, or gone.
                if _is_fifo(fd) and _unread_bytes(fd) < _MOST_UNREAD_BYTES:
                    os.write(fd, b".")


def grant(layout: Layout, path: str, may_go_on: Callable[[], bool]) -> None:
    """Let all waiters that listen to this bell of a :class:`Queue` go on, if ``may_go_on()``. Raises nothing.

    ``may_go_on`` is called when no more waiters can join them, so its answer holds for each of them.
    """
    with contextlib.suppress(OSError):
        bell = _open_to_wake(layout, path)
        if bell is not None:
            with bell as fd:
                layout.reach.unlink(path)
                # No waiter reads the byte, so all of them see it. A process that dies before this line grants nothing.
                if may_go_on() and _is_fifo(fd):
                    os.write(fd, b".")


def _open_to_wake(layout: Layout, path: str) -> Descriptor | None:
    """Returns a FIFO that is open for writing; ``None`` where nobody waits, and then removes the file.

    It may be a file of another kind, which somebody planted. Raises :class:`OSError`.
    """
    refuse_symlink(os.path.dirname(path))
    try:
        return layout.reach.open(path, WRITE)
    except FileNotFoundError:
        return None
    except OSError:
        layout.reach.unlink(path)
        return None


def _is_fifo(fd: int) -> bool:
    return stat.S_ISFIFO(os.fstat(fd).st_mode)


def _unread_bytes(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


class Woken(Enum):
    """The end of a sleep in a :class:`Queue`."""

    BY_NOBODY = auto()
    #: The waiter is the first in the queue. It wakes the next one as soon as it has what they wait for, or gives up.
    IN_TURN = auto()
    #: All listening waiters were granted what they wait for.
    BY_GRANT = auto()


class Queue:
    """A place among processes that wait for the same: they are woken one at a time, in the order in which they came."""

    __slots__ = ("_bell", "_bell_path", "_fifo", "_layout", "_path", "_poll")

    def __init__(self, layout: Layout, path: str, bell_path: str = "") -> None:
        """``bell_path``: the bell of :func:`grant`; empty for a waiter that cannot be granted anything."""
        self._layout = layout
        self._path = path
        self._bell_path = bell_path
        self._fifo: _Descriptor | None = None
        self._bell: _Descriptor | None = None
        self._poll: select.epoll | None = None

    def join(self) -> bool:
        """Take a place, unless this has one. Returns whether it is a new one: check once more before sleeping."""
        before = self._fifo, self._bell
        self._queue_up()
        self._listen()
        return (self._fifo, self._bell) != before

    def sleep(self, seconds: float) -> Woken:
        """Sleep for ``seconds``, or until woken. Requires: :meth:`join`."""
        if self._poll is None or self._fifo is None:
            time.sleep(seconds)
            return Woken.BY_NOBODY
        events = dict(self._poll.poll(seconds))
        if self._bell is not None:
            event = events.get(self._bell.fileno(), 0)
            if event & select.EPOLLIN:
                return Woken.BY_GRANT
            if event or not _has_name(self._bell):  # the granter refused, or died, or never saw this bell
                with contextlib.suppress(OSError):
                    self._poll.unregister(self._bell)  # closing does not do it where a forked child has it open too
                self._bell = None
        # Another waiter may have read the byte first.
        return Woken.IN_TURN if self._fifo.fileno() in events and self._fifo.read(1) else Woken.BY_NOBODY

    def _queue_up(self) -> None:
        """Take a place at the end. Does nothing where there is no epoll, or no FIFO can be made."""
        if self._fifo is not None and _has_name(self._fifo):
            return
        self._fifo = self._bell = self._poll = None
        if not hasattr(select, "epoll"):
            return
        with contextlib.suppress(OSError):
            refuse_symlink(os.path.dirname(self._path))
            # For writing too: else the kernel reports a hang-up whenever the last writer has closed the FIFO.
            fifo = _open_fifo(self._layout, self._path, UPDATE)
            if fifo is not None:
                poll = select.epoll()
                # The kernel wakes one of the exclusive waiters, and begins with the one that registered first.
                poll.register(fifo, select.EPOLLIN | select.EPOLLEXCLUSIVE)
                self._fifo, self._poll = fifo, poll

    def _listen(self) -> None:
        if self._poll is None or self._bell is not None or not self._bell_path:
            return
        with contextlib.suppress(OSError):
            bell = _open_fifo(self._layout, self._bell_path, READ)
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
        """Whether both the bell and the death of the process will end the sleep, as far as that can be known."""
        return self._bell is not None and self._pidfd is not None

    def listen(self) -> None:
        """Listen for the bell, which is made if it is missing. Does nothing where there can be none."""
        if self._bell is not None and _has_name(self._bell):
            return
        self._bell = None
        with contextlib.suppress(OSError):
            refuse_symlink(os.path.dirname(self._path))
            self._bell = _open_fifo(self._layout, self._path, READ)
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
        """Sleep for at most ``seconds``. Returns whether an event ended the sleep; each does so once."""
        heard = [each for each in (self._bell, self._pidfd) if each is not None]
        if not heard:
            time.sleep(seconds)
            return False
        poll = select.poll()
        for each in heard:
            poll.register(each, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(seconds * 1000)}
        if self._bell is not None and self._bell.fileno() in ready:
            self._bell = None
        if self._pidfd is not None and self._pidfd.fileno() in ready:
            self._pidfd = None
        return bool(ready)


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

"""State of a node towards a server: the entries seen by a process; for a directory, what the server lacks and answers.

Keeps invariant 2 (last write wins) on a node: a name is marked before it is written or removed here, and as long as the
mark stands no process reads that name from the server. The mark goes when the server has what the directory had at that
moment. So if a value could not be sent, or its sender was killed, the server's older value does not come back after an
eviction. Marks are numbers that only grow, so that of two writers of one name the later one's mark stays until its own
value was sent. It also stays while another process is sending an older value, which may arrive behind the newer one:
that process sends again what the directory has by then, or was killed, and then the name is not read from the server.

A mark may come and go while an answer is on its way to another process. So each mark also changes the name's *stamp*, a
random number in a file of fixed size, which is never changed back: a process that keeps a copy compares the stamp from
before its question with the stamp after its copy. Each stamp serves a group of names; a change for another name of the
group costs a copy.

Keeps invariant 7 (never take the job down): a file that cannot be read counts as missing; a failed write is a debugging
message. All files are in one folder for each server, below the directory's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import (
    FOLDER,
    UPDATE,
    Layout,
    ProcessLock,
    make_folder,
    open_below,
    open_or_create,
    read_small,
    replace_file,
    unlink_below,
)
from lockcache.filestream.remote.sending import InFlight
from lockcache.filestream.remote.transport import RemoteUrl
from lockcache.filestream.remote.wait_limits import PROBE_AFTER_SECONDS, Breaker
from lockcache.fork import after_fork_in_child

__all__ = ["NodeSeen", "Seen", "SeenHere", "SharedBreaker", "Stamps", "make_server_folder"]

_log = logging.getLogger("lockcache")

# No record states such a time.
_NEVER_NS: Final = 1 << 64
# Of a number in decimal.
_NUMBER_BYTES: Final = 24
# Marks, of 4 KiB each at worst. Beyond this number, one time replaces all of them.
_MOST_MARKS: Final = 4096
_MARKS_BETWEEN_COUNTS: Final = 256
# A mark is written in 50 us. Without the lock, marks are still written, but not removed, which is safe.
_LOCK_SECONDS: Final = 0.2
# A process that held the lock for longer may be stopped: for this time, no one waits for it again.
_BETWEEN_WAITS_SECONDS: Final = 10.0
# Groups of names. If 300 names are written while an answer is on its way, one copy in 27 is not kept because of another
# name.
_GROUPS: Final = 8192
_STAMP_BYTES: Final = 4
# Settings that identify the client, not the server. A digest of a short secret would reveal it.
_SECRETS: Final = ("key", "secret", "pass", "token", "credential", "sas", "sig", "user")
# The latest time that a record states.
_LATEST_NS: Final = 2**63 - 1
# Names with what was seen of them, 150 bytes each.
_MOST_SEEN: Final = 65_536


def server_folder(layout: Layout, url: RemoteUrl) -> str:
    """Returns the folder of one server; a server that differs only in a setting, such as an endpoint, has another."""
    settings = sorted(parse_qsl(urlsplit(url.url).query, keep_blank_values=True))
    told_apart = [pair for pair in settings if not any(word in pair[0].lower() for word in _SECRETS)]
    words = f"{url.shown} {url.prefix}" + (f" {told_apart}" if told_apart else "")
    digest = hashlib.sha256(words.encode(), usedforsecurity=False).hexdigest()
    return f"{layout.remote}/{digest[:16]}"


def make_server_folder(layout: Layout, url: RemoteUrl) -> str:
    """Make :func:`server_folder`, and what is in it. Raises :class:`OSError`."""
    folder = server_folder(layout, url)
    for path in (layout.remote, folder, f"{folder}/unsent"):
        make_folder(layout, path)
    return folder


class SharedBreaker(Breaker):
    """A breaker for all processes of a directory: a file with the time at which the server is to be probed."""

    def __init__(self, layout: Layout, folder: str) -> None:
        super().__init__()
        self._layout = layout
        self._path = f"{folder}/breaker"
        self._was_open = False

    def is_open(self) -> bool:
        """See :class:`.wait_limits.Breaker`."""
        self._was_open = self._until() > 0
        return self._was_open

    def takes_probe(self) -> bool:
        """See :class:`.wait_limits.Breaker`. Of two at the same moment both may be."""
        until = self._until()
        if not 0 < until <= time.time():
            return False
        self.open()
        return True

    def open(self) -> None:
        """See :class:`.wait_limits.Breaker`."""
        super().open()
        try:
            until = time.time() + PROBE_AFTER_SECONDS
            replace_file(self._layout, self._path, b"%d" % until, fsync=False)
        except OSError as error:
            _log.debug("%s: the others do not know that a server does not answer: %s", self._path, error)

    def note_success(self) -> None:
        """See :class:`.wait_limits.Breaker`."""
        super().note_success()
        if self._was_open:
            self._was_open = False
            try:
                unlink_below(self._layout, self._path)
            except OSError as error:
                _log.debug("%s: %s", self._path, error)

    def _until(self) -> float:
        """Returns when the server is to be probed; 0 for a breaker that is closed."""
        until = _number(self._layout, self._path)
        # A time that is too far away was written by a clock that was wrong.
        return until if until <= time.time() + 2 * PROBE_AFTER_SECONDS else 0.0


class Stamps(NamedTuple):
    """The stamps of all groups of names at one moment."""

    content: bytes

    def of(self, name: str) -> bytes:
        """Returns the stamp of the group of ``name``."""
        first = _place_of(name)
        return self.content[first : first + _STAMP_BYTES]


def _place_of(name: str) -> int:
    return int(name[-4:], 16) % _GROUPS * _STAMP_BYTES


class Seen(Protocol):
    """The times from which entries of each name are believed, in ns since the epoch."""

    def floor_ns(self, name: str) -> int:
        """Returns the time of creation before which entries of this name are not believed."""

    def note(self, name: str, created_ns: int) -> None:
        """Note that an entry of this age was stored or read: older ones are not believed from now on."""

    def note_all(self, now_ns: int) -> None:
        """Note that all entries stored until now were removed here."""

    def write_time_ns(self, name: str, now_ns: int) -> int:
        """Returns the time for a write: later than that of all it replaces, whatever the clocks of other hosts say."""


class SeenHere:
    """The entries that one process has seen. Beyond 65,536 names, all are taken to have been seen now."""

    def __init__(self) -> None:
        self._floors: dict[str, int] = {}
        self._least_ns = 0
        self._after_fork_in_child()
        after_fork_in_child(self)

    def floor_ns(self, name: str) -> int:
        """See :class:`Seen`."""
        return self._floors.get(name, self._least_ns)

    def note(self, name: str, created_ns: int) -> None:
        """See :class:`Seen`."""
        with self._noting:  # the later time of two threads must not be lost
            if len(self._floors) >= _MOST_SEEN:
                self._forget(time.time_ns())  # not what other processes have seen
            self._floors[name] = max(created_ns, self._floors.get(name, self._least_ns))

    def note_all(self, now_ns: int) -> None:
        """See :class:`Seen`."""
        with self._noting:
            self._forget(now_ns)

    def write_time_ns(self, name: str, now_ns: int) -> int:
        """See :class:`Seen`."""
        return min(max(now_ns, self._floors.get(name, self._least_ns) + 1), _LATEST_NS)

    def _forget(self, now_ns: int) -> None:
        self._least_ns = now_ns
        self._floors.clear()

    def _after_fork_in_child(self) -> None:
        self._noting = threading.RLock()  # a signal handler may store in the midst of a store


class NodeSeen(SeenHere):
    """The names that the processes of one directory have written, as far as the server may lack the values."""

    def __init__(self, layout: Layout, folder: str) -> None:
        super().__init__()
        self._layout = layout
        self._unsent = f"{folder}/unsent"
        self._floor = f"{folder}/floor"
        self._stamps = f"{folder}/stamps"
        self._lock = ProcessLock(f"{folder}/lock", _LOCK_SECONDS, layout=layout)
        #: The values that are being sent.
        self.sending = InFlight(layout, f"{folder}/sending")
        self._waits_again_at = 0.0
        # Of processes that each write fewer, one in so many counts anyway.
        self._marks = random.randrange(_MARKS_BETWEEN_COUNTS)
        self._change_stamps(0, b"")
        self._bound()

    def floor_ns(self, name: str) -> int:
        """See :class:`Seen`."""
        if self.marked_ns(name):
            return _NEVER_NS  # not the mark's own time: an older value of another node may be dated later
        return max(super().floor_ns(name), _number(self._layout, self._floor))

    def note_all(self, now_ns: int) -> None:
        """See :class:`Seen`."""
        super().note_all(now_ns)
        self._write_floor(now_ns)

    def stamps(self) -> Stamps:
        """Returns the stamps as they are now. To be read before a server is asked, and before :meth:`floor_ns`."""
        try:
            return Stamps(read_small(self._layout, self._stamps, _GROUPS * _STAMP_BYTES))
        except OSError:
            return Stamps(b"")

    def marked_ns(self, name: str) -> int:
        """Returns the mark of a name; 0 for none."""
        return _number(self._layout, f"{self._unsent}/{name}")

    def mark(self, name: str) -> int:
        """Let no process here read this name from the server, or keep an answer on its way, until :meth:`unmark`.

        Returns the mark; 0 where none could be written.
        """
        with self._locked():
            number = max(time.time_ns(), self.marked_ns(name) + 1)
            is_marked = self._write(f"{self._unsent}/{name}", number)
        self._change_stamps(_place_of(name), os.urandom(_STAMP_BYTES))
        self._marks += 1
        if self._marks % _MARKS_BETWEEN_COUNTS == 0:
            self._bound()
        return number if is_marked else 0

    def is_superseded(self, name: str, number: int) -> bool:
        """Returns whether another process wrote or removed the name after :meth:`mark` returned ``number``."""
        found = self.marked_ns(name)
        # Without a mark: that process has sent its value since, unless one time replaced all marks.
        return 0 < number != found and (found > number or number > _number(self._layout, self._floor))

    def unmark(self, name: str, number: int) -> bool:
        """Remove a mark, unless another process is sending a value. Returns whether it was still this one."""
        if not number:
            return True
        with self._locked() as is_locked:
            if not is_locked:
                return True  # the mark stays
            if self.marked_ns(name) != number:
                return False
            if self.sending.is_sent_elsewhere(name):
                return True  # the mark stays
            try:
                unlink_below(self._layout, f"{self._unsent}/{name}")
            except OSError as error:
                _log.debug("%s: a mark stays: %s", self._unsent, error)
            return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock of the marks if it is free in time. Yields whether it is held."""
        hold = None
        try:
            is_patient = time.monotonic() >= self._waits_again_at
            hold = self._lock.hold(_LOCK_SECONDS) if is_patient else self._lock.try_hold()
        except LockTimeoutError as error:
            self._waits_again_at = time.monotonic() + _BETWEEN_WAITS_SECONDS
            _log.debug("%s: marks are written without it for a while: %s", self._lock.path, error)
        except OSError as error:
            _log.debug("%s: marks are written without it: %s", self._lock.path, error)
        try:
            yield hold is not None
        finally:
            if hold is not None:
                hold.release()

    def _bound(self) -> None:
        """Replace all marks by one number if there are too many: a server was away for long."""
        try:
            with open_below(self._layout, self._unsent, FOLDER) as fd:
                names = os.listdir(fd)
                if len(names) <= _MOST_MARKS:
                    return
                super().note_all(time.time_ns())
                if self._write_floor(time.time_ns()):
                    for name in names:
                        with contextlib.suppress(FileNotFoundError):  # others do the same
                            os.unlink(name, dir_fd=fd)
        except OSError as error:
            _log.debug("%s: %s", self._unsent, error)

    def _write_floor(self, now_ns: int) -> bool:
        """Believe nothing that was stored before now, and keep no answer on its way. Returns whether this was noted."""
        is_written = self._write(self._floor, now_ns)
        self._change_stamps(0, os.urandom(_GROUPS * _STAMP_BYTES))
        return is_written

    def _change_stamps(self, first: int, content: bytes) -> None:
        try:
            with open_or_create(self._layout, self._stamps, UPDATE) as fd:
                if os.fstat(fd).st_size < _GROUPS * _STAMP_BYTES:
                    with contextlib.suppress(OSError):  # so that a disk that is full later does not matter
                        os.posix_fallocate(fd, 0, _GROUPS * _STAMP_BYTES)
                if content:
                    os.pwrite(fd, content, first)
        except OSError as error:
            _log.debug("%s: what is on its way may be kept: %s", self._stamps, error)

    def _write(self, path: str, number: int) -> bool:
        try:
            replace_file(self._layout, path, b"%d" % number, fsync=False)
        except OSError as error:
            _log.debug("%s: %s", path, error)
            return False
        return True


def _number(layout: Layout, path: str) -> int:
    """Returns the number in a small file; 0 where there is none."""
    try:
        text = read_small(layout, path, _NUMBER_BYTES)
        return int(text) if text.isdigit() else 0
    except OSError:
        return 0

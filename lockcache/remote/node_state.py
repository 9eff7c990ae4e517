# SPDX-License-Identifier: Apache-2.0
"""State of a process and of a node towards a server: the process's unsent writes, and whether the server answers.

:class:`UnsentWrites` keeps the promise that an object through which an entry was stored or removed reads no older one
from the server, whether the server took the write or not. Others may: a server is a source, and keys are digests of
content, so either value is right.

Keeps invariant 7 (never take the job down): a file that cannot be read counts as missing; a failed write is a debugging
message. All files are in one folder for each server, below the directory's own.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from lockcache.filestream.disk import Layout, read_small, replace_file
from lockcache.fork import after_fork_in_child
from lockcache.remote.servers import RemoteUrl
from lockcache.remote.wait_limits import PROBE_AFTER_SECONDS, Breaker

__all__ = ["BoundedNames", "Moment", "SharedBreaker", "UnsentWrites", "Write", "make_server_folder"]

_log = logging.getLogger("lockcache")

# Of a number in decimal.
_NUMBER_BYTES: Final = 24
# Settings that identify the client, not the server. A digest of a short secret would reveal it.
_SECRETS: Final = ("key", "secret", "pass", "token", "credential", "sas", "sig", "user")
# A clock that was set by less counts as the same one.
_SHORTEST_SET_NS: Final = 10**9
# Names of 150 bytes each.
_MOST_UNSENT: Final = 65_536


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
    for path in (layout.remote, folder):
        layout.reach.make_folder(path)
        layout.reach.refuse_symlinks(path)
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
                self._layout.reach.unlink(self._path)
            except OSError as error:
                _log.debug("%s: %s", self._path, error)

    def _until(self) -> float:
        """Returns when the server is to be probed; 0 for a breaker that is closed."""
        until = _number(self._layout, self._path)
        # A time that is too far away was written by a clock that was wrong.
        return until if until <= time.time() + 2 * PROBE_AFTER_SECONDS else 0.0


class BoundedNames(set[str]):
    """A set of names, which begins again after 65,536."""

    def add(self, name: str) -> None:
        """Add a name."""
        if len(self) >= _MOST_UNSENT:
            self.clear()
        super().add(name)


class Moment(NamedTuple):
    """A moment in this process's life."""

    clock_ns: int
    #: The time since the host's boot, which nobody sets.
    since_boot_ns: int

    @classmethod
    def now(cls) -> Moment:
        """Returns the present."""
        return cls(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def by_present_clock(self) -> int:
        """Returns the time of the moment as this host's clock has it now.

        That differs from what the clock showed then after it, which was ahead, was set right. Otherwise nothing that
        others store would count until the time that it had shown.
        """
        now = Moment.now()
        set_by_ns = (now.clock_ns - now.since_boot_ns) - (self.clock_ns - self.since_boot_ns)
        # Less is the time between the two readings, in which this thread may have waited.
        return self.clock_ns + (set_by_ns if abs(set_by_ns) > _SHORTEST_SET_NS else 0)


class Write:
    """A write or a removal of this process, and the same object until its end."""

    __slots__ = ("value",)

    def __init__(self, value: bytes | None) -> None:
        #: What is stored, while it waits to be sent or is on its way. ``None``: it was removed, or its value was lost.
        self.value = value

    def lose(self) -> None:
        """Forget a value that is not on its way any more. Takes no lock: a sender calls it under its own."""
        self.value = None


class UnsentWrites:
    """What one object stored or removed last, as long as the server has not confirmed that.

    A value is kept while the sender has it too, so that its own process finds it. Beyond 65,536 names, all that was
    stored before that moment counts as replaced. A forked child keeps the names of its parent, without the values, and
    does not read them from the server.

    Not promised: to tell apart what hosts whose clocks differ from this one's stored before and after that moment.
    """

    def __init__(self) -> None:
        self._writes: dict[str, Write] = {}
        self._doubtful = BoundedNames()
        self._least: Moment | None = None
        self._after_fork_in_child()
        after_fork_in_child(self)

    def begin(self, name: str, value: bytes | None = None) -> Write:
        """Note that this process writes ``value``, or removes ``name``. Returns that.

        Its end is :meth:`confirm` or :meth:`Write.lose`; until then :meth:`value` returns the value.
        """
        with self._noting:
            if len(self._writes) >= _MOST_UNSENT:
                self.replace_all(Moment.now())
            write = self._writes[name] = Write(value)
            return write

    def value(self, name: str) -> bytes | None:
        """Returns the value that this process stored last under ``name``, while it is on its way."""
        write = self._writes.get(name)
        return None if write is None else write.value

    def confirm(self, name: str, write: Write) -> None:
        """Note that the server has taken a write, which a later one of this process may have replaced."""
        with self._noting:
            if name not in self._doubtful and self._writes.get(name) is write:
                del self._writes[name]
        write.lose()

    def doubt(self, name: str) -> None:
        """Note a write that was not answered: the server may take it late, after one that is confirmed by then."""
        with self._noting:
            self._doubtful.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._writes

    def replace_all(self, moment: Moment) -> None:
        """Let nothing count that was stored before ``moment``."""
        with self._noting:
            self._least = moment
            self._writes.clear()

    def replaces(self, name: str, created_ns: int) -> bool:
        """Returns whether the server's entry, of this age, is not what this process wrote last."""
        return name in self._writes or (self._least is not None and created_ns < self._least.by_present_clock())

    def _after_fork_in_child(self) -> None:
        self._noting = threading.RLock()  # a signal handler may store in the midst of a store
        for write in self._writes.values():
            write.lose()


def _number(layout: Layout, path: str) -> int:
    """Returns the number in a small file; 0 where there is none."""
    try:
        text = read_small(layout, path, _NUMBER_BYTES)
        return int(text) if text.isdigit() else 0
    except OSError:
        return 0

# SPDX-License-Identifier: Apache-2.0
"""Counters of the servers behind a directory: what its programs together read of each, sent to it, and lost.

Each server has a file, a sector of counters as the directory's own, in the folder that the directory keeps of it, so
that a directory without a server has none. Programs add to it when they add to the directory's own page.

Keeps invariant 7 (never take the job down): files that others could write are read up to a bound, and a file that
cannot be read counts as missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from lockcache.filestream.accounting import SECTOR_BYTES, CountersCodec
from lockcache.filestream.disk import (
    FOLDER,
    UPDATE,
    Layout,
    ProcessLock,
    is_alone,
    read_small,
    replace_file,
)
from lockcache.remote.node_state import SharedBreaker
from lockcache.remote.servers import RemoteUrl
from lockcache.reports import CountersReport, Numbers

__all__ = ["RemoteCounts", "ServerCounters", "ServerSeen", "read_servers", "report_of", "reset_servers_locked"]

_log = logging.getLogger("lockcache")

_LONGEST_NAME: Final = 500
# A directory has one server, or the few that it ever had.
_MOST_SERVERS: Final = 64


@dataclass
class RemoteCounts:
    """The counts of one store since it was made."""

    hits: int = 0
    misses: int = 0
    #: Entries that the server took.
    puts: int = 0
    #: Entries that it did not get: it refused them or was dead, too much waited, or the process ended.
    lost_puts: int = 0
    #: Calls that failed, of whatever kind.
    errors: int = 0
    #: Answers that no writer had stored under that key. Each was a miss.
    corrupt_entries: int = 0
    #: Answers that are signed where there is no key for them, or not signed where there is one.
    refused_entries: int = 0
    #: Answers that this process had replaced or removed before. Each was a miss.
    stale_entries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    #: Lookups that were answered, and the time that they took together, in ns.
    answers: int = 0
    answers_ns: int = 0
    #: Entries that were fetched because a manifest lists them. Not among the hits.
    prefetched: int = 0
    #: Among ``hits``: look-ups that waited until another host had compiled.
    waits: int = 0
    #: Entries that it may still have although they were removed here: it did not answer in time.
    lost_removals: int = 0
    #: Among ``lost_puts``: entries that it refused.
    refused_puts: int = 0


@dataclass
class ServerCounters(RemoteCounts):
    """The counts for one server of all programs of a directory that reported."""

    #: How often a program added something, and when it last did, in ns since the epoch. 0: never.
    reports: int = 0
    last_report_ns: int = 0

    def _asdict(self) -> dict[str, int]:
        """Returns the counts by their names, as :class:`.Counters` does."""
        return {**vars(self)}

    @property
    def hit_ratio(self) -> float | None:
        """Hits of all lookups, 0 to 1; ``None`` before the first lookup was reported."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else None


@dataclass(frozen=True)
class ServerSeen:
    """One server, as the programs of a directory know it."""

    #: Its URL without user, password and settings other than the prefix.
    server: str
    counters: ServerCounters
    #: The same since :func:`reset_servers_locked`, whose time is ``last_report_ns``; ``None`` if nobody did that.
    since_reset: ServerCounters | None
    #: Whether no process asks it now, because it did not answer.
    is_resting: bool


_NOTHING: Final = tuple(vars(ServerCounters()).values())
_SERVER: Final = CountersCodec(ServerCounters, tuple(vars(ServerCounters())))


class _HeldFile:
    """The counters of one server. Requires: the directory's lock."""

    def __init__(self, layout: Layout, folder: str) -> None:
        self._layout, self._folder, self._path = layout, folder, f"{folder}/counters"

    def add(self, delta: Numbers) -> None:
        """Add to each number. Raises :class:`OSError`."""
        self._change(lambda sector: _SERVER.add(sector, delta))

    def reset(self) -> None:
        """Begin to count again, for people. Raises :class:`OSError`."""
        self._change(_SERVER.reset)

    def _change(self, change: Callable[[bytes], bytes]) -> None:
        self._layout.reach.refuse_symlinks(self._folder)
        with self._layout.reach.open_or_create(self._path, UPDATE) as fd:
            if not is_alone(fd):
                # Something else, or a second name of another file, which must not be written to.
                self._layout.reach.unlink(self._path)
                raise OSError(f"{self._path} was not a file of its own")
            os.pwrite(fd, change(os.pread(fd, SECTOR_BYTES, 0)), 0)


@contextlib.contextmanager
def _held(layout: Layout, folder: str, patience_seconds: float) -> Iterator[_HeldFile]:
    lock = ProcessLock(layout.directory_lock, 0.0, layout=layout)  # closed again: a program may use many directories
    try:
        hold = lock.hold(patience_seconds)
        try:
            yield _HeldFile(layout, folder)
        finally:
            hold.release()
    finally:
        lock.close()


def report_of(layout: Layout, folder: str, url: RemoteUrl, counted: Callable[[], RemoteCounts]) -> CountersReport:
    """Returns the report of what one process ``counted`` to the page in ``folder``; notes there which server it is.

    Without a folder nothing is written.
    """

    def counts() -> Numbers:
        return (*vars(counted()).values(), 0, 0)

    if not folder:
        return CountersReport(counts, None, nothing=_NOTHING)
    shown = url.shown if url.prefix == "lockcache:" else f"{url.shown}?prefix={url.prefix}"
    name = shown.encode(errors="replace")[:_LONGEST_NAME]
    try:
        if _name_in(layout, folder) != name:
            replace_file(layout, f"{folder}/name", name, fsync=False)
    except OSError as error:
        _log.debug("%s: it does not say which server it is: %s", folder, error)
    return CountersReport(counts, partial(_held, layout, folder), nothing=_NOTHING)


def read_servers(layout: Layout) -> tuple[ServerSeen, ...]:
    """Returns up to 64 servers that programs of this directory ever used, by their names, which are unique."""
    seen: dict[str, ServerSeen] = {}
    for folder in _folders(layout):
        name = _name_in(layout, folder).decode(errors="replace")
        if not name or not name.isprintable() or name in seen:
            name = f"{name if name.isprintable() else ''} {os.path.basename(folder)}".strip()
        sector = _sector_in(layout, folder)
        seen[name] = ServerSeen(
            name,
            _SERVER.read(sector),
            _SERVER.read_since(sector),
            SharedBreaker(layout, folder).is_open(),
        )
    return tuple(seen[name] for name in sorted(seen))


def reset_servers_locked(layout: Layout) -> None:
    """Begin to count again, for people. Requires: the directory's lock. Raises :class:`OSError`."""
    for folder in _folders(layout):
        _HeldFile(layout, folder).reset()


def _folders(layout: Layout) -> Iterator[str]:
    names: list[str] = []
    with contextlib.suppress(OSError), layout.reach.open(layout.remote, FOLDER) as fd:
        names = sorted(os.listdir(fd))[:_MOST_SERVERS]
    for folder in (f"{layout.remote}/{name}" for name in names):
        with contextlib.suppress(OSError):
            layout.reach.refuse_symlinks(folder)
            yield folder


def _sector_in(layout: Layout, folder: str) -> bytes:
    try:
        return read_small(layout, f"{folder}/counters", SECTOR_BYTES)
    except OSError:
        return b""


def _name_in(layout: Layout, folder: str) -> bytes:
    try:
        return read_small(layout, f"{folder}/name", _LONGEST_NAME)
    except OSError:
        return b""

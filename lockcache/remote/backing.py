# SPDX-License-Identifier: Apache-2.0
"""A server behind a directory, for programs that do not know of it: ``$LOCKCACHE_REMOTE``.

Each node trusts its directory first. An entry that the directory lacks is fetched from the server, and stored in the
directory unless there is one by then. A value that is stored is offered to the server in the background. A removal asks
the server first, and then removes the entry here, so that no look-up that begins in between copies it back. One of
another process that began before may.

The server is a source: it may have another value of a key than the directory had, and either is right, since keys are
digests of content. Promised is that a process reads no older value than its own last write
(:class:`.node_state.UnsentWrites`). Keeps invariant 7 (never take the job down): see :mod:`.store`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lockcache.arguments import warn_once
from lockcache.filestream import CacheDirectory, Outcome, Writer, Written
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.entry import KeyRing, Record
from lockcache.remote.counters import report_of
from lockcache.remote.node_state import BoundedNames, SharedBreaker, make_server_folder
from lockcache.remote.prefetching import Prefetch
from lockcache.remote.servers import RemoteUrl, UrlSettingError, configured_url, require_client
from lockcache.remote.store import RemoteStore
from lockcache.remote.wait_limits import Breaker
from lockcache.reports import reports

if TYPE_CHECKING:
    from lockcache.composition.sources import Server

_log = logging.getLogger("lockcache")


class Backing:
    """The server behind one directory. One object for all caches of this process that are the same."""

    def __init__(self, directory: CacheDirectory, url: RemoteUrl, keys: KeyRing | None) -> None:
        folder = make_server_folder(directory.layout, url) if not directory.is_read_only else ""
        if not folder:
            # Nothing is made in a directory that is only read, nor sent: this process alone knows of its server.
            url = url._replace(may_send=False)
        self._folder = folder
        self._keys = keys
        self._prefetches: dict[str, Prefetch] = {}
        self.store = RemoteStore(url, keys, breaker=SharedBreaker(directory.layout, folder) if folder else Breaker())
        #: The names that this process removed, and has not stored since: a copy on its way must not bring them back.
        self.removed = BoundedNames()
        #: The report of this process's counts with the server, for all processes to see.
        self.report = report_of(directory.layout, folder, url, self.store.snapshot)
        # Flushed before the report, so that lost writes are counted.
        reports.add(self, self.report, first=self.store.flush)

    def prefetch(self, path: str, writer: Writer, counts: dict[str, int]) -> None:
        """Fetch what the manifest at ``path`` (empty: none) lists, once in this process, by one process of a node."""
        if path and path not in self._prefetches:
            prefetch = Prefetch(writer, self.store, self._keys, self._folder, path, counts)
            self._prefetches[path] = prefetch
            prefetch.begin()


class BackedWriter:
    """Stores and removes in the directory and on the server behind it."""

    __slots__ = ("_removed", "_server", "_writer", "directory")

    def __init__(self, writer: Writer, server: Server, removed: set[str]) -> None:
        """``removed``: of this process, whatever cache it was removed by."""
        self._writer = writer
        self._server = server
        self._removed = removed
        self.directory = writer.directory

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"") -> Written:
        """Store in the directory, and offer the value to the server, also where the directory dropped it."""
        written = self._writer.store(name, payload, record, note)
        self._removed.discard(name)
        self._server.offer(name, payload, record)
        return written

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """Store in the directory alone: a copy comes from behind it. Not what this process removed meanwhile."""
        written = self._writer.store_copy(name, loaded)
        if written.outcome is Outcome.STORED and name in self._removed:
            self._writer.remove(name)
        return written

    def remove(self, name: str) -> bool:
        """Remove from both. Returns whether one of the two had it."""
        was_there = not has_entry(self.directory.layout, name) and self._server.load(name) is not None
        self._removed.add(name)
        self._server.remove(name)
        return self._writer.remove(name) or was_there

    def remove_all(self) -> None:
        """Remove all entries of the directory. The server is left alone."""
        self._writer.remove_all()


# Directories of which a process stays connected to the server, so that one that opens many has descriptors left.
_MOST_CONNECTED: Final = 16
_backings: Final[dict[tuple[str, RemoteUrl, str, bool], Backing]] = {}


def backing_of(directory: CacheDirectory, keys: KeyRing | None, key_file: str) -> Backing | None:
    """Returns the server behind a directory, if ``$LOCKCACHE_REMOTE`` names one: the same object for each server and
    directory, for programs that open their cache for each compilation. Behind a directory that is only read, the server
    is only read as well.

    Raises :class:`ValueError` naming the variable. A client that is not installed, or a setting that it does not have,
    is a warning.
    """
    try:
        url = configured_url()
    except UrlSettingError as error:
        warn_once(f"{error}; programs go on without it")
        return None
    if url is None:
        return None
    place = (directory.layout.root, url, key_file, directory.is_read_only)
    if place not in _backings:
        try:
            require_client(url)
            # In one step: of two threads that come first, all use the object of one, and none that of the other.
            _backings.setdefault(place, Backing(directory, url, keys))
            for older in list(_backings.values())[:-_MOST_CONNECTED]:
                older.store.link.disconnect()
        except (ImportError, OSError) as error:
            _log.warning("LOCKCACHE_REMOTE: %s; programs go on without it", error)
            return None
    return _backings[place]

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
import time
from collections.abc import Callable, Collection
from typing import Final

from lockcache.arguments import warn_once
from lockcache.filestream import CacheDirectory, Outcome, Writer, Written
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.compile_once import ImplicitTurns, LeaseTurn
from lockcache.filestream.entry import EntryReader, KeyRing, Record
from lockcache.remote.counters import report_of
from lockcache.remote.node_state import SharedBreaker, make_server_folder
from lockcache.remote.prefetching import Fetched, Prefetch, fetch_missing
from lockcache.remote.servers import RemoteUrl, UrlSettingError, configured_url, require_client
from lockcache.remote.store import RemoteStore
from lockcache.remote.turns import RemoteTurn, take_turn
from lockcache.remote.wait_limits import Breaker
from lockcache.reports import reports

_log = logging.getLogger("lockcache")

Load = Callable[[str], "tuple[bytes, bytes] | None"]


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
        #: The report of this process's counts with the server, for all processes to see.
        self.report = report_of(directory.layout, folder, url, self.store)
        # Flushed before the report, so that lost writes are counted.
        reports.add(self, self.report, first=self.store.flush)

    def prefetch(self, path: str, writer: Writer, counts: dict[str, int]) -> None:
        """Fetch what the manifest at ``path`` (empty: none) lists, once in this process, by one process of a node."""
        if path and path not in self._prefetches:
            prefetch = Prefetch(writer, self.store, self._keys, self._folder, path, counts)
            self._prefetches[path] = prefetch
            prefetch.begin()

    def fetch(
        self,
        directory: CacheDirectory,
        writer: Writer,
        keys: Collection[str],
        seconds: float,
        progress: Callable[[int, int], object],
    ) -> Fetched:
        """Fetch what the directory lacks of ``keys`` now, as :func:`fetch_missing`, whether the server rests or not."""
        return fetch_missing(
            directory, self.store, keys, self._keys, writer.store_copy, seconds=seconds, progress=progress
        )


class BackedWriter:
    """Stores and removes in the directory and on the server behind it."""

    __slots__ = ("_store", "_writer", "directory")

    def __init__(self, writer: Writer, store: RemoteStore) -> None:
        self._writer = writer
        self._store = store
        self.directory = writer.directory

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"") -> Written:
        """Store in the directory, and offer the value to the server, also where the directory dropped it."""
        written = self._writer.store(name, payload, record, note)
        self._store.offer(name, payload, record)
        return written

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """Store in the directory alone: a copy comes from behind it. Not what this process removed meanwhile."""
        written = self._writer.store_copy(name, loaded)
        if written.outcome is Outcome.STORED and name in self._store.removed:
            self._writer.remove(name)
        return written

    def remove(self, name: str) -> bool:
        """Remove from both. Returns whether one of the two had it."""
        store = self._store
        was_there = not has_entry(self.directory.layout, name) and store.load(name) is not None
        store.remove(name)
        return self._writer.remove(name) or was_there

    def remove_all(self) -> None:
        """Remove all entries of the directory. The server is left alone."""
        self._writer.remove_all()


class BackedReads:
    """The reads and turns of one cache object, with a server behind its directory."""

    def __init__(
        self,
        store: RemoteStore,
        writer: Writer,
        load: Load,
        lookups: EntryReader,
        implicit: ImplicitTurns | None,
        timeout_seconds: float | None,
        counts: dict[str, int],
    ) -> None:
        """Count look-ups in ``lookups`` and evictions in ``counts``."""
        self._store = store
        self._writer = writer
        self._load = load
        self._lookups = lookups
        self._implicit = implicit
        self._timeout_seconds = timeout_seconds
        self._counts = counts

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Load from the directory, and ask the server for what is not there."""
        loaded = self._load(name)
        if loaded is not None:
            return loaded
        turn = None if self._implicit is None else self._implicit.mine(name)
        loaded = self.found(name) if turn is None else self.load_or_join(turn)
        if loaded is not None and self._implicit is not None:
            self._implicit.stored(name, was_dropped=False)
        return loaded

    def load_or_join(self, turn: LeaseTurn) -> tuple[bytes, bytes] | None:
        """Returns the server's entry; else ``None``, and ``turn`` holds for all nodes if the server keeps leases."""
        loaded = self.found(turn.name)
        if loaded is not None:
            return loaded
        waits, began = self._lookups.waits, time.monotonic()
        outcome = take_turn(self._store, turn.name, self._timeout_seconds, counts=self._lookups)
        if isinstance(outcome, RemoteTurn):
            if outcome.after_failure:
                turn.end(failed=True)  # on this node nobody waits for it either
            else:
                turn.join(outcome.end)
            return None
        kept = self._kept(turn.name, outcome)
        if self._lookups.run is not None and self._lookups.waits > waits:
            self._lookups.run.waited(turn.name, int((time.monotonic() - began) * 1e9))
        return kept

    def joined(self, turn: LeaseTurn) -> tuple[bytes, bytes] | LeaseTurn:
        """Returns what the server has, after ending ``turn``; else ``turn``, like :meth:`load_or_join`.

        After a failure on this node, no other node is waited for either.
        """
        try:
            loaded = self.found(turn.name) if turn.after_failure else self.load_or_join(turn)
        except BaseException:
            turn.end()
            raise
        if loaded is None:
            return turn
        turn.end(was_stored=True)
        return loaded

    def found(self, name: str) -> tuple[bytes, bytes] | None:
        loaded = self._store.load(name)
        if loaded is None:
            return None
        self._lookups.misses -= 1  # as the directory alone counted it
        return self._kept(name, loaded)

    def _kept(self, name: str, loaded: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Store what the server has, unless the directory has an entry by now; return it either way."""
        written = self._writer.store_copy(name, loaded)
        self._counts["evictions"] += written.evicted.entries
        self._lookups.hits += 1
        self._lookups.note_found(name, loaded)
        return loaded


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
        except (ImportError, OSError) as error:
            _log.warning("LOCKCACHE_REMOTE: %s; programs go on without it", error)
            return None
    return _backings[place]

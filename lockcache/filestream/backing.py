"""A server behind a directory, for programs that do not know of it: ``$LOCKCACHE_REMOTE``.

Decides which reads, writes and turns of a directory reach the server. In a directory without a server, a hit or a miss
makes no further call. Each node trusts its directory first. An entry that the directory lacks is fetched from the
server, and stored in the directory unless a process has stored or removed something meanwhile; what is written or
removed is sent in the background.

Keeps invariant 2 (last write wins) on the node by marks (:class:`.remote.NodeSeen`), and by sending what the directory
has at that moment, not what was written first. Keeps invariant 7 (never take the job down): see :mod:`.remote`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from lockcache.filestream.accounting import report_at_end
from lockcache.filestream.compile_once import ImplicitTurns, LeaseTurn
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import UnstatedRecency
from lockcache.filestream.entry import EntryReader, KeyRing, Record, loader_of, make_reader, unpack
from lockcache.filestream.prefetching import Fetched, Prefetch, fetch_missing, store_copy
from lockcache.filestream.remote import (
    NodeSeen,
    RemoteStore,
    RemoteTurn,
    RemoteUrl,
    SharedBreaker,
    Stamps,
    configured_url,
    make_server_folder,
    report_of,
    require_client,
    seal,
    take_turn,
)
from lockcache.filestream.writer import EntryWriter

_log = logging.getLogger("lockcache")

Load = Callable[[str], "tuple[bytes, bytes] | None"]


class Backing:
    """The server behind one directory. One object for all caches of this process that are the same."""

    def __init__(self, directory: CacheDirectory, url: RemoteUrl, keys: KeyRing | None) -> None:
        folder = make_server_folder(directory.layout, url)
        self._folder = folder
        self._layout = directory.layout
        self._keys = keys
        self._prefetches: dict[str, Prefetch] = {}
        self.seen = NodeSeen(directory.layout, folder)
        self.store = RemoteStore(url, keys, breaker=SharedBreaker(directory.layout, folder), seen=self.seen)
        #: The report of this process's counts with the server, for all processes to see.
        self.report = report_of(directory.layout, folder, url, self.store)
        # Flushed before the report, so that lost writes are counted.
        report_at_end(self, self.report, self.store.flush)
        # For what is sent: not a use of the entry.
        reader = make_reader(directory.layout, UnstatedRecency(directory.layout.root), keys)
        self._reader = loader_of(directory.layout, reader, is_shared=directory.is_shared)

    def reads(
        self,
        writer: EntryWriter,
        load: Load,
        lookups: EntryReader,
        implicit: ImplicitTurns | None,
        timeout_seconds: float | None,
        counts: dict[str, int],
    ) -> BackedReads:
        """Returns the reads of one cache object, which counts look-ups in ``lookups`` and evictions in ``counts``."""
        return BackedReads(self, writer, load, lookups, implicit, timeout_seconds, counts)

    def prefetch(self, path: str, writer: EntryWriter, counts: dict[str, int]) -> None:
        """Fetch what the manifest at ``path`` (empty: none) lists, once in this process, by one process of a node."""
        if path and path not in self._prefetches:
            prefetch = Prefetch(writer, self.store, self.seen, self._keys, self._folder, path, counts)
            self._prefetches[path] = prefetch
            prefetch.begin()

    def fetch(
        self,
        directory: CacheDirectory,
        writer: EntryWriter,
        keys: Collection[str],
        seconds: float,
        progress: Callable[[int, int], object],
    ) -> Fetched:
        """Fetch what the directory lacks of ``keys`` now, as :func:`fetch_missing`, whether the server rests or not."""
        keep = partial(store_copy, writer, self.seen)
        return fetch_missing(
            directory, self.store, self.seen, keys, self._keys, keep, seconds=seconds, progress=progress
        )

    def mark(self, name: str, record: Record) -> tuple[int, Record]:
        """Mark a value before it is stored in the directory. Returns the mark, and the record to store the value with.

        Marked before it is stored: if the write is dropped, a lookup that finds nothing would otherwise read the older
        value.
        """
        mark = self.seen.mark(name)
        # The time is later than that of all that was read here, by any clock: else this process would take its own
        # value for an older one.
        return mark, record._replace(created_ns=self.seen.write_time_ns(name, record.created_ns))

    def wrote(self, name: str, mark: int, payload: bytes, record: Record) -> None:
        """Note that a marked value was stored in the directory, or dropped there."""
        self.seen.note(name, record.created_ns)
        # Sealed when it is sent, and only if the directory no longer has it.
        send = partial(self._send, name, mark, payload, record)
        self.store.sender().send(send, self.store.lose, len(payload))

    def remove(self, name: str, remove_here: Callable[[str], bool]) -> bool:
        """Remove an entry here by ``remove_here``, and from the server. Returns whether one of the two had it."""
        # Of several removers at once, the one that removes the entry from the directory counts as having had it: the
        # others do not ask the server, or find a mark there.
        was_there = self._reader.load(name) is None and self.store.load(name) is not None
        # A lookup that asked the server before may store its copy behind the removal here: it compares the stamps then.
        # A process that writes in between marks later, and its value is sent: as if it had written after the removal.
        mark = self.seen.mark(name)
        was_there = remove_here(name) or was_there
        self.seen.note(name, self.seen.write_time_ns(name, max(mark, time.time_ns())))
        self.store.sender().send(partial(self._remove, name, mark), _do_nothing)
        return was_there

    def cleared(self) -> None:
        """Note that all entries were removed from the directory, which no longer reads the server's older values."""
        self.seen.note_all(time.time_ns())

    def _send(self, name: str, mark: int, payload: bytes, record: Record) -> bool:
        with self.seen.sending.holding(name):
            if self.seen.is_superseded(name, mark):
                return True  # that process sends the newer value
            value = self._held(name, record.created_ns) or seal(name, payload, record, self._keys)
            return self.store.put(name, value) and self._sent(name, mark)

    def _send_held(self, name: str, mark: int) -> bool:
        """Make the server hold what the directory holds for one entry. Returns whether it does."""
        with self.seen.sending.holding(name):
            if self.seen.is_superseded(name, mark):
                return True
            value = self._held(name, 0)
            return self._remove(name, mark) if value is None else self.store.put(name, value) and self._sent(name, mark)

    def _held(self, name: str, least_ns: int) -> bytes | None:
        """Returns what the directory has, unless it is older: a copy of what a dropped write was to replace."""
        held = self._reader.load(name)
        if held is None or not held[1] or unpack(held[1]).created_ns < least_ns:
            return None
        return held[1] + held[0]

    def _sent(self, name: str, mark: int) -> bool:
        if not self.seen.unmark(name, mark):
            # Another process wrote meanwhile, and the server may have taken its value before this one's.
            again = self.seen.mark(name)
            self.store.sender().send(partial(self._send_held, name, again), _do_nothing)
        return True

    def _remove(self, name: str, mark: int) -> bool:
        if self.seen.is_superseded(name, mark):
            return True
        if not self.store.tell(lambda transport: transport.remove(name)):
            return False
        self.seen.unmark(name, mark)  # if this removed a newer value, the server only lacks it
        return True


class BackedReads:
    """The reads and turns of one cache object, with a server behind its directory."""

    def __init__(
        self,
        backing: Backing,
        writer: EntryWriter,
        load: Load,
        lookups: EntryReader,
        implicit: ImplicitTurns | None,
        timeout_seconds: float | None,
        counts: dict[str, int],
    ) -> None:
        self.backing = backing
        self._writer = writer
        self._load = load
        self._lookups = lookups
        self._implicit = implicit
        self._timeout_seconds = timeout_seconds
        self._counts = counts

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Load like :meth:`.entry.reader.Loader.load`, and ask the server for what is not in the directory."""
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
        stamps = self.backing.seen.stamps()
        loaded = self.found(turn.name)
        if loaded is not None:
            return loaded
        waits, began = self._lookups.waits, time.monotonic()
        outcome = take_turn(self.backing.store, turn.name, self._timeout_seconds, counts=self._lookups)
        if isinstance(outcome, RemoteTurn):
            if outcome.after_failure:
                turn.end(failed=True)  # on this node nobody waits for it either
            else:
                turn.join(outcome.end)
            return None
        kept = self._kept(turn.name, outcome, stamps)
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
        stamps = self.backing.seen.stamps()
        loaded = self.backing.store.load(name)
        if loaded is None:
            return None
        self._lookups.misses -= 1  # as the directory alone counted it
        return self._kept(name, loaded, stamps)

    def _kept(self, name: str, loaded: tuple[bytes, bytes], stamps: Stamps) -> tuple[bytes, bytes]:
        """Store what the server has, unless the directory has or had something else meanwhile; return it either way.

        ``stamps``: the stamps from before the server was asked.
        """
        written = store_copy(self._writer, self.backing.seen, name, loaded, stamps)
        self._counts["evictions"] += written.evicted.entries
        self._lookups.hits += 1
        self._lookups.note_found(name, loaded)
        return loaded


_backings: Final[dict[tuple[str, RemoteUrl, str], Backing]] = {}


def backing_of(directory: CacheDirectory, keys: KeyRing | None, key_file: str) -> Backing | None:
    """Returns the server behind a directory, if ``$LOCKCACHE_REMOTE`` names one: the same object for each server and
    directory, for programs that open their cache for each compilation.

    Raises :class:`ValueError` naming the variable. A client that is not installed is a warning.
    """
    url = configured_url()
    if url is None:
        return None
    place = (directory.layout.root, url, key_file)
    if place not in _backings:
        try:
            require_client(url)
            # In one step: of two threads that come first, all use the object of one, and none that of the other.
            _backings.setdefault(place, Backing(directory, url, keys))
        except (ImportError, OSError) as error:
            _log.warning("LOCKCACHE_REMOTE: %s; programs go on without it", error)
            return None
    return _backings[place]


def _do_nothing() -> None:
    """Do nothing: the job is dropped without harm, since the mark stays."""

# SPDX-License-Identifier: Apache-2.0
"""Lookup: the way of a name to its entry, in one object: the directory, its seed, the turn to compute, the server.

Stands between a cache and the reader of its directory, where lookups are more than reads of a file; there are no more
objects on the way. Keeps invariant 2 (last write wins) for an object that writes where only reading is allowed, or that
compiles again: entries that it must not read are hidden, and count as misses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockcache.filestream.compile_once import ImplicitTurns, LeaseTurn
from lockcache.filestream.entry import EntryReader, cost_of

if TYPE_CHECKING:
    from lockcache.composition.sources import Server, Source
    from lockcache.filestream import Writer
    from lockcache.remote.manifest import Recorder


class Lookup:
    """The lookups of one cache object. Counts in the reader of the directory."""

    #: The turns of a cache for callers that only look up and store, if it is one.
    implicit: ImplicitTurns | None = None
    #: Whether an entry must not be read, if there are such entries.
    is_hidden: Callable[[str], bool] | None = None

    def __init__(self, entries: str, reader: EntryReader, seed: Source | None, recorder: Recorder | None) -> None:
        """``entries``: the folder that ``reader`` reads. ``recorder``: of what is looked up."""
        self._entries = f"{entries}/"
        self._load = reader.load
        self._counts = reader
        self._seed = seed
        self._recorder = recorder

    def here(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns the entry of the directory or its seed; ``None`` for a miss, without any turn."""
        counts, seed = self._counts, self._seed
        if self._recorder is not None:
            self._recorder.note(name)
        # Of a seeded directory most entries are in the seed alone: a failed open costs more than to ask. In this order:
        # a deletion marks an entry before it removes it, so a reader that misses the entry here finds the mark.
        is_there = seed is None or os.access(f"{self._entries}{name[:2]}/{name[2:]}", os.F_OK, effective_ids=True)
        loaded = self._load(name) if is_there else None
        if loaded is None and seed is not None:
            loaded = seed.load(name)
            counts.misses += (loaded is None) - is_there  # which the directory alone counted as a miss
            if loaded is not None:
                counts.hits += 1
                counts.saved_ns += cost_of(loaded[1])
        if loaded is not None and counts.run is not None:
            counts.note_found(name, loaded)
        return loaded

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns the entry; ``None`` for a miss, after which the caller may have the turn to compute it."""
        if self.is_hidden is not None and self.is_hidden(name):
            if self._recorder is not None:
                self._recorder.note(name)
            self._counts.misses += 1
            return None
        if self.implicit is None:
            loaded = self.here(name)
        else:
            self.implicit.end_mine()
            loaded = self.here(name) or self.implicit.take(name)
        return self._from_server(name) if loaded is None else loaded

    def _from_server(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns ``None``: there is no server."""
        return None


class ServedLookup(Lookup):
    """The lookups of a cache object with a server behind its directory, which is asked for what is not there."""

    def serve(self, server: Server, writer: Writer, timeout_seconds: float | None, counts: dict[str, int]) -> None:
        """Ask ``server`` from now on. Counts evictions in ``counts``. ``timeout_seconds``: for another host's turn."""
        self._server = server
        self._writer = writer
        self._timeout_seconds = timeout_seconds
        self._evictions = counts

    def _from_server(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns what the server has of a name that the directory lacks, and that is not hidden."""
        turn = None if self.implicit is None else self.implicit.mine(name)
        loaded = self.found(name) if turn is None else self._load_or_join(turn)
        if loaded is not None and self.implicit is not None:
            self.implicit.stored(name, was_dropped=False)
        return loaded

    def joined(self, turn: LeaseTurn) -> tuple[bytes, bytes] | LeaseTurn:
        """Returns what the server has, after ending ``turn``; else ``turn``, which holds for all hosts then.

        After a failure on this host, no other one is waited for either.
        """
        try:
            loaded = self.found(turn.name) if turn.after_failure else self._load_or_join(turn)
        except BaseException:
            turn.end()
            raise
        if loaded is None:
            return turn
        turn.end(was_stored=True)
        return loaded

    def found(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns what the server has, and keeps it in the directory."""
        loaded = self._server.load(name)
        if loaded is None:
            return None
        self._counts.misses -= 1  # as the directory alone counted it
        return self._kept(name, loaded)

    def _load_or_join(self, turn: LeaseTurn) -> tuple[bytes, bytes] | None:
        """Returns the server's entry; else ``None``, and ``turn`` holds for all hosts if the server keeps leases."""
        loaded = self.found(turn.name)
        if loaded is not None:
            return loaded
        waits, began = self._counts.waits, time.monotonic()
        outcome = self._server.turn(turn.name, self._timeout_seconds, self._counts)
        if not isinstance(outcome, tuple):
            if outcome.after_failure:
                turn.end(failed=True)  # on this host nobody waits for it either
            else:
                turn.join(outcome.end)
            return None
        kept = self._kept(turn.name, outcome)
        if self._counts.run is not None and self._counts.waits > waits:
            self._counts.run.waited(turn.name, int((time.monotonic() - began) * 1e9))
        return kept

    def _kept(self, name: str, loaded: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Store what the server has, unless the directory has an entry by now; return it either way."""
        written = self._writer.store_copy(name, loaded)
        self._evictions["evictions"] += written.evicted.entries
        self._counts.hits += 1
        self._counts.note_found(name, loaded)
        return loaded

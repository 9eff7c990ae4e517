# SPDX-License-Identifier: Apache-2.0
"""SharedComputations: one computation of an entry across all processes that share a directory.

The half of a cache object that takes turns (:mod:`lockcache.filestream.compile_once`), asks the server behind the
directory under a turn, and stores what was computed. Keeps invariant 5 (death is free) by those turns, and invariant 7
(never take the job down): where nothing can be stored, nobody is waited for.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from lockcache import serving
from lockcache.arguments import coerce_seconds
from lockcache.explain import Stated, key_in_words, known_statement, statement_of
from lockcache.filestream.compile_once import LeaseTurn
from lockcache.filestream.disk import entry_name
from lockcache.resource import (
    Entry,
    ProgramCacheResource,
    coerce_key,
    computed_entry,
    in_namespace,
    put_into,
    split_metadata,
)
from lockcache.serving import watch
from lockcache.single_flight import Turn, refuse_reentrance

if TYPE_CHECKING:
    from lockcache.composition.lookup import ServedLookup
    from lockcache.composition.parts import Parts
    from lockcache.filestream import CacheDirectory
    from lockcache.filestream.compile_once import ImplicitTurns
    from lockcache.filestream.entry import EntryReader

# Looked up once, as in .cache.
_access: Final = os.access
_EXISTS: Final = os.F_OK


class SharedComputations(ProgramCacheResource):
    """The computations of a cache object: :class:`.FileStreamProgramCache` has the rest."""

    _parts: Parts
    _directory: CacheDirectory
    _reader: EntryReader
    _implicit: ImplicitTurns | None
    _renewed: set[str] | None
    _backed: ServedLookup | None

    def begin(
        self, key: bytes | str, *, label: str = "", namespace: str = "", missed: bool = False
    ) -> Entry | Turn[Entry]:
        """Returns the entry, or the caller's turn to compute it; one across all processes that share the directory.

        ``missed``: the caller has just looked it up here, and missed: that is not done again before it has the turn.
        """
        raw = key if type(key) is bytes else coerce_key(key)
        if self._is_only_read:  # what cannot be stored nobody needs to wait for
            return self.get_entry(raw) or serving.unawaited(self, raw, label, partial(self._unstored, raw))
        if self._renewed is not None:
            return super().begin(raw, label=label, namespace=namespace)
        name = entry_name(raw)
        if self._implicit is not None:
            self._implicit.end_mine()
        reader, loaded = self._reader, None
        if not missed and reader.expects_miss and not _access(self._directory.layout.entry(name), _EXISTS):
            reader.misses += 1  # as in get
        elif not missed:
            loaded = self._parts.once.load(name)
        if loaded is None:
            refuse_reentrance(self, raw)
            stated = statement_of(raw, label) if label else known_statement(raw)
            shown = label or ("" if stated is None else stated.label)
            outcome = self._parts.once.wait_or_turn(name, shown, partial(key_in_words, key))
            if isinstance(outcome, LeaseTurn) and self._backed is not None:
                outcome = self._backed.joined(outcome)
            if isinstance(outcome, LeaseTurn):
                publish = partial(self._publish_in, outcome, stated)
                turn = Turn(publish if namespace == "" else in_namespace(namespace, publish), outcome.end)
                outcome.begin()
                return serving.watched(self, raw, label, turn) if watch.is_on else turn
            loaded = outcome
        # An entry of a newer version, whose metadata cannot be read here, stays as it is.
        return self._entry(loaded) or serving.unawaited(self, raw, label, computed_entry)

    def wait(self, key: bytes | str, timeout_seconds: float) -> Entry | None:
        """Returns the entry once the process or thread that has its turn stores it. Takes no turn."""
        if self._is_only_read or self._renewed is not None:
            return super().wait(key, timeout_seconds)
        name, seconds = entry_name(coerce_key(key)), coerce_seconds("timeout_seconds", timeout_seconds)
        return self._entry(self._parts.once.load(name) or self._parts.once.wait(name, seconds))

    def _publish_in(self, turn: LeaseTurn, stated: Stated | None, value: object, cost_ns: int) -> Entry:
        was_stored = was_dropped = False
        try:
            entry = computed_entry(value, cost_ns)
            code, tail, cost_ns = split_metadata(entry.code, {**entry.metadata})
            # Another process has taken the turn over while this one was overdue.
            if (loaded := self._parts.once.look(turn.name)) is not None:
                # Not counted as a hit: this one computed it, and was counted as a miss.
                self._reader.take_back_computed(turn.name, loaded)
                if (published := self._entry(loaded)) is not None:
                    return published
            was_dropped = not (was_stored := self._write(turn.name, code, tail, cost_ns, stated))
            self._parts.once.costs.remember(turn.name, cost_ns)
            return entry
        finally:
            turn.end(was_stored=was_stored, was_dropped=was_dropped)

    def _unstored(self, key: bytes, value: object, cost_ns: int) -> Entry:
        entry = computed_entry(value, cost_ns)
        put_into(self, key, entry)  # counted, and never read again through this object
        return entry

    @abstractmethod
    def _entry(self, loaded: tuple[bytes, bytes] | None) -> Entry | None:
        """Returns what was loaded, as an entry."""

    @abstractmethod
    def _write(self, name: str, code: bytes, tail: bytes, cost_ns: int, stated: Stated | None) -> bool:
        """Store one entry. Returns whether it was stored."""

# SPDX-License-Identifier: Apache-2.0
"""Gathering: the verified entries of a directory that a choice admits, and why others cannot be loaded.

Keeps invariant 1 (a hit is whole) for what is shipped: an entry that fails its digest is left out and counted. Leaves
the directory as it was: an entry that is gathered was not used. Takes no lock; writers and evictors go on, and what
they remove meanwhile is left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lockcache import metadata
from lockcache.bundle.reading import Onlooker
from lockcache.filestream.entry import Record, pack, unpack
from lockcache.filestream.inspect import describe_bytes, read_note
from lockcache.lowlevel import Described, Found, KeyRing, Layout, Selection, all_entries, describe_entry

__all__ = ["Choice", "Gathered", "Gatherer", "LeftOut", "describe_seeded", "possible"]


@dataclass(frozen=True)
class Choice:
    """The choice of entries to gather."""

    selection: Selection = field(default_factory=Selection)
    #: Also entries without a record, which nothing can verify: those of cuda.core's own cache.
    include_unverified: bool = False
    #: Also entries that only the seed of the directory has.
    include_seeded: bool = True
    #: Only these; ``None``: all.
    names: frozenset[str] | None = None


@dataclass(frozen=True)
class LeftOut:
    """An entry that should have been gathered and could not be."""

    entry: str
    #: ``damaged`` or ``unreadable``.
    why: str


@dataclass(frozen=True)
class Gathered:
    """The outcome for the requested entries."""

    entries: int
    #: The bytes of payloads.
    bytes: int
    #: The entries that only the directory's seed has.
    seeded: int
    #: Left out: failed their digest.
    damaged: int
    #: Left out: are there, and cannot be read (EIO, EACCES).
    unreadable: int
    #: Left out: signed, and there is no such key here; or not signed, and there is a key here.
    refused: int
    #: Left out: have no record, so that nothing could verify them.
    unverified: int
    #: The damaged and the unreadable ones.
    left_out: tuple[LeftOut, ...]

    @property
    def is_complete(self) -> bool:
        """Whether all requested entries that may be served were found."""
        return not self.left_out


class Gatherer:
    """Finds the entries of ``layout``, in the order of their last use, and loads them one at a time."""

    def __init__(
        self, layout: Layout, choice: Choice, keys: KeyRing | None, progress: Callable[[int, int], object]
    ) -> None:
        """``progress`` is given bytes read and bytes to read, where each entry is loaded once."""
        self._layout = layout
        self._reader = Onlooker(layout, keys, is_seeded=choice.include_seeded)
        self._progress = progress
        self._done_bytes = 0
        self._seeded = dict(_select_seeded(layout, keys, choice.selection)) if choice.include_seeded else {}
        own = (found for found in self._select(choice.selection) if found.name not in self._seeded)
        wanted = choice.names
        self.found = sorted(found for found in (*own, *self._seeded.values()) if wanted is None or found.name in wanted)
        self._to_read_bytes = sum(found.size_bytes for found in self.found)
        self._include_unverified = choice.include_unverified
        #: The damaged and the unreadable ones.
        self.left_out: list[LeftOut] = []
        #: Entries that have no record, and are left out for it.
        self.unverified = 0

    @property
    def refused(self) -> int:
        """Entries that are signed, and there is no such key here; or not signed, and there is one."""
        return self._reader.refused

    def is_seeded(self, found: Found) -> bool:
        """Returns whether an entry was found in the seed of the directory alone."""
        return found.name in self._seeded

    def gathered(self, entries: int, payload_bytes: int, seeded: int) -> Gathered:
        """Returns what became of the entries, of which so many were written, of them ``seeded`` of the seed."""
        damaged = sum(each.why == "damaged" for each in self.left_out)
        unreadable = len(self.left_out) - damaged
        left_out = tuple(self.left_out)
        counts = damaged, unreadable, self.refused, self.unverified
        return Gathered(entries, payload_bytes, seeded, *counts, left_out)

    def load(self, found: Found) -> tuple[bytes, bytes] | None:
        """Returns payload and record (empty if it has none), verified; ``None`` for an entry that is left out."""
        damaged, refused = self._reader.damaged, self._reader.refused
        loaded = self._reader.load(found.name)
        self._done_bytes += found.size_bytes
        self._progress(self._done_bytes, self._to_read_bytes)
        if self._reader.damaged > damaged:
            self.left_out.append(LeftOut(found.name, "damaged"))
        elif loaded is None and self._reader.refused == refused and os.path.lexists(self._layout.entry(found.name)):
            self.left_out.append(LeftOut(found.name, "unreadable"))
        if loaded is not None and not loaded[1] and not self._include_unverified:
            self.unverified += 1
            return None
        return loaded

    def whole_record(self, found: Found, payload: bytes, blob: bytes, keys: KeyRing | None = None) -> bytes:
        """Returns the record in one piece, wherever its parts were kept: unsigned, or signed with ``keys``.

        The record includes the program's name and the parts of its key, which may be stored next to it. An entry that
        has no record gets one, of the bytes that were read.
        """
        name, record = found.name, Record(len(payload), max(0, found.last_use_ns), 0, b"")
        if blob:
            record = possible(unpack(blob))._replace(payload_bytes=len(payload))
            record = record._replace(tail=self._with_note(name, record.tail))
        return pack(name, payload, record) if keys is None else keys.pack(name, payload, record)

    def _with_note(self, name: str, tail: bytes) -> bytes:
        try:
            if not metadata.decode_fields(tail)[1]:
                # Its fields alone: a note proves nothing, and could bring a mapping of its own.
                tail = metadata.add_fields(tail, **metadata.decode_fields(read_note(self._layout, name))[1])
        except (TypeError, ValueError):
            pass  # metadata of a newer version, or a damaged note: as it is
        return tail

    def _select(self, selection: Selection) -> Iterator[Found]:
        """Yields the selected entries, and those that cannot be described, so that these are reported as left out."""
        now_ns = time.time_ns()
        for found in all_entries(self._layout):
            if selection.admits(found, now_ns) and (not selection.needs_record or self._is_meant(found, selection)):
                yield found

    def _is_meant(self, found: Found, selection: Selection) -> bool:
        described = describe_entry(self._layout, found)
        return described is not None and (described.record in ("damaged", "unreadable") or selection.matches(described))


def possible(record: Record) -> Record:
    """Returns the record with 0, unknown, for a time before 1970 (a host without a clock) or a cost below nothing.

    On both ways: programs serve such an entry, so it is worth shipping, and nobody is to compute with what it states.
    """
    return record._replace(created_ns=max(0, record.created_ns), cost_ns=max(0, record.cost_ns))


def describe_seeded(layout: Layout, keys: KeyRing | None) -> Iterator[tuple[Found, Described | None]]:
    """Yields each entry that only the seed of the directory has, with ``None`` for one that cannot be verified.

    When it was last used nobody records: as far as is known, when it was compiled.
    """
    onlooker = Onlooker(layout, keys, is_seeded=True)
    for name in onlooker.seeded_names:
        loaded = onlooker.load(name)
        if loaded is None:
            yield Found(0, name, 0, 0), None
        else:
            described = describe_bytes(name, *loaded)
            yield Found(max(0, described.created_ns or 0), name, len(loaded[0]), 0), described


def _select_seeded(layout: Layout, keys: KeyRing | None, selection: Selection) -> Iterator[tuple[str, Found]]:
    """Yields the selected entries of the seed with their names, and those that cannot be described."""
    if (selection.unused_seconds, selection.used_seconds) != (None, None):
        return  # what is not known matches no filter
    for found, described in describe_seeded(layout, keys):
        if described is None or not selection.needs_record or selection.matches(described):
            yield found.name, found

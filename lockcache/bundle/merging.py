# SPDX-License-Identifier: Apache-2.0
"""Merging bundles: keeps the newest entry of each program, and the newest programs that fit.

Keeps invariant 1 (a hit is whole): an entry that is damaged in one bundle is taken from another, or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, Protocol

from lockcache.filestream import Place, bundle_bytes, entry_bytes
from lockcache.filestream.bundle import BundleFile, BundleWriter, RefusedEntryError
from lockcache.filestream.entry import unpack

__all__ = ["Merge", "Merged", "merge_bundles"]


@dataclass(frozen=True)
class Merged:
    """The outcome of merging bundles, in counts of entries."""

    entries: int
    #: The bytes of payloads.
    bytes: int
    #: Left out: there is a newer one in another bundle.
    replaced: int
    #: Left out: the oldest, for the size.
    too_old: int
    #: Left out: damaged, or not signed with the keys.
    damaged: int


class Source(Protocol):
    """A source of entries: a bundle, or a directory in the place of one."""

    size_bytes: int

    def places(self) -> list[Place]:
        """Returns the place of each entry."""

    def find(self, name: bytes) -> tuple[bytes, int, int, int] | None:
        """Returns the place of one entry."""

    def load(self, name: bytes) -> tuple[bytes, bytes] | None:
        """Returns payload and record of an entry, verified; ``None`` for one that the source leaves out or has lost.

        Raises :class:`ValueError` for one that is damaged.
        """


class _Candidate(NamedTuple):
    created_ns: int
    source: int
    place: Place
    #: In a bundle.
    taken_bytes: int


class Merge:
    """The newest entry of each name in several sources, found when this is made. Each entry is read for that."""

    def __init__(
        self, sources: Sequence[Source], progress: Callable[[int, int], object], max_size_bytes: int | None = None
    ) -> None:
        """Read the sources. The arguments are those of :func:`merge_bundles`."""
        self._sources = sources
        self._progress = progress
        self._done_bytes = 0
        self._to_read_bytes = 2 * sum(source.size_bytes for source in sources)
        self._found = self._left_out = 0
        #: Entries that are damaged, and those that are not signed with the keys, or signed and there are none.
        self.damaged = self.refused = 0
        self._newest = self._find_newest()
        self._chosen = _fit(self._newest, max_size_bytes)

    def count_from(self, source: int) -> int:
        """Returns how many of the chosen entries are of one source."""
        return sum(candidate.source == source for candidate in self._chosen.values())

    def write(self, out: BinaryIO) -> Merged:
        """Write a bundle of the chosen entries. Raises :class:`OSError`."""
        replaced = self._found - self._left_out - self.damaged - self.refused - len(self._newest)
        writer = BundleWriter(out)
        for name, candidate in sorted(self._chosen.items()):
            loaded = self._load(candidate.source, candidate.place)
            if loaded is not None:
                writer.add(name, *loaded)
                del loaded  # else two are in memory while the next one is read
        writer.finish()
        too_old = len(self._newest) - len(self._chosen)
        return Merged(writer.entries, writer.payload_bytes, replaced, too_old, self.damaged + self.refused)

    def _find_newest(self) -> dict[bytes, _Candidate]:
        newest: dict[bytes, _Candidate] = {}
        for number, source in enumerate(self._sources):
            for place in source.places():
                self._found += 1
                loaded = self._load(number, place)
                if loaded is not None:
                    created_ns, taken_bytes = max(0, unpack(loaded[1]).created_ns), entry_bytes(sum(map(len, loaded)))
                    candidate = _Candidate(created_ns, number, place, taken_bytes)
                    newest[place.name] = max(newest.get(place.name, candidate), candidate)
                    del loaded
        return newest

    def _load(self, number: int, place: Place) -> tuple[bytes, bytes] | None:
        """Returns payload and record, verified; ``None`` for an entry that cannot be loaded, which is counted."""
        self._done_bytes += place.record_bytes + place.payload_bytes
        self._progress(min(self._done_bytes, self._to_read_bytes), self._to_read_bytes)
        source = self._sources[number]
        try:
            if source.find(place.name) != place:
                raise ValueError("a second place of one name, which is never read")
            loaded = source.load(place.name)
        except RefusedEntryError:
            self.refused += 1
            return None
        except ValueError:
            self.damaged += 1
            return None
        self._left_out += loaded is None
        return loaded


def merge_bundles(
    sources: Sequence[BundleFile],
    out: BinaryIO,
    max_size_bytes: int | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Merged:
    """Write what is in ``sources`` to ``out``: of entries with one name the one that was created last.

    Of two created at once, the one of the later source is taken. With ``max_size_bytes`` the oldest are left out until
    the file fits. Every entry is read twice, so memory is bounded by the largest, and a hundred bytes for each.
    ``progress`` is given bytes read and bytes to read, at most. Raises :class:`OSError`.
    """
    return Merge(sources, progress, max_size_bytes).write(out)


def _fit(newest: dict[bytes, _Candidate], max_size_bytes: int | None) -> dict[bytes, _Candidate]:
    """Returns the newest entries that fit into a bundle of ``max_size_bytes``."""
    kept = dict(newest)
    if max_size_bytes is None:
        return kept
    oldest_first = sorted(newest, key=lambda name: (newest[name].created_ns, name), reverse=True)
    held = sum(candidate.taken_bytes for candidate in kept.values())
    while kept and bundle_bytes(held, len(kept)) > max_size_bytes:
        held -= kept.pop(oldest_first.pop()).taken_bytes
    return kept

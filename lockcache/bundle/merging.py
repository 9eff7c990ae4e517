"""Merging bundles: of each program the newest, and of all programs the newest that fit.

Keeps invariant 1 (a hit is whole): an entry that is damaged in one bundle is taken from another, or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from lockcache.filestream.bundle import BundleFile, BundleWriter, Place, bundle_bytes
from lockcache.filestream.entry import unpack

__all__ = ["Merged", "merge_bundles"]


@dataclass(frozen=True)
class Merged:
    """What became of the entries of several bundles."""

    entries: int
    #: Of payloads.
    bytes: int
    #: Left out: there is a newer one in another bundle.
    replaced: int
    #: Left out: the oldest, for the size.
    too_old: int
    #: Left out: damaged, or not signed with the keys.
    damaged: int


class _Candidate(NamedTuple):
    created_ns: int
    source: int
    place: Place


def merge_bundles(
    sources: Sequence[BundleFile],
    out: BinaryIO,
    max_size_bytes: int | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Merged:
    """Write what is in ``sources`` to ``out``: of entries with one name the one that was created last.

    Of two created at once the one of the later source. With ``max_size_bytes`` the oldest leave until the file is not
    larger. Every entry is read twice, so memory is bounded by the largest, and a hundred bytes for each. ``progress``
    is given bytes read and bytes to read, at most. Raises :class:`OSError`.
    """
    to_read = 2 * sum(source.size_bytes for source in sources)
    done = damaged = found = 0
    newest: dict[bytes, _Candidate] = {}
    for number, source in enumerate(sources):
        for place in source.places():
            found += 1
            done += place.record_bytes + place.payload_bytes
            progress(min(done, to_read), to_read)
            try:
                # A second place of one name is never read.
                loaded = source.load(place.name) if source.find(place.name) == place else None
            except ValueError:
                loaded = None
            if loaded is None:
                damaged += 1
                continue
            candidate = _Candidate(max(0, unpack(loaded[1]).created_ns), number, place)
            newest[place.name] = max(newest.get(place.name, candidate), candidate)
            del loaded
    replaced = found - damaged - len(newest)
    chosen = _fit(newest, max_size_bytes)
    writer = BundleWriter(out)
    for name, candidate in sorted(chosen.items()):
        try:
            loaded = sources[candidate.source].load(name)
        except ValueError:  # damaged since
            loaded = None
        done += candidate.place.record_bytes + candidate.place.payload_bytes
        progress(min(done, to_read), to_read)
        if loaded is None:
            damaged += 1
            continue
        writer.add(name, *loaded)
        del loaded
    writer.finish()
    return Merged(
        writer.entries,
        writer.payload_bytes,
        replaced=replaced,
        too_old=len(newest) - len(chosen),
        damaged=damaged,
    )


def _fit(newest: dict[bytes, _Candidate], max_size_bytes: int | None) -> dict[bytes, _Candidate]:
    """Those that are left when the oldest went until the bundle is at most so large."""
    kept = dict(newest)
    if max_size_bytes is None:
        return kept
    oldest_first = sorted(newest, key=lambda name: (newest[name].created_ns, name), reverse=True)
    held = sum(candidate.place.taken_bytes for candidate in kept.values())
    while kept and bundle_bytes(held, len(kept)) > max_size_bytes:
        held -= kept.pop(oldest_first.pop()).place.taken_bytes
    return kept

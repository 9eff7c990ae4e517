"""Packing: the verified entries of a directory, into one file.

Keeps invariant 1 (a hit is whole) for what is shipped (an entry that fails its digest is left out and counted) and
leaves the directory as it was: an entry that is packed was not used, so its place among the least recently used stays.
Takes no lock; writers and evictors go on, and what they remove meanwhile is left out.

The same entries, with the same last uses, give the same bytes: on any file system, for any owner, at any time (with one
release of libzstd, if they are compressed, and of lockcache).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from lockcache.archive.compression import DEFAULT_LEVEL, compressing
from lockcache.archive.gathering import Choice, Gathered, Gatherer
from lockcache.archive.members import Manifest, end_of_archive, entry_header, manifest_member, padding
from lockcache.filestream.entry import unpack
from lockcache.lowlevel import Found, Layout, load_keys
from lockcache.metadata import decode

#: The fields of the manifest that count values of metadata.
_COUNTED: Final = {"kind": "kinds", "arch": "arches", "compiler": "compilers"}


@dataclass(frozen=True)
class Packed(Gathered):
    """The outcome of packing."""

    #: Left out: removed or rewritten while we packed.
    changed: int


def pack_directory(
    layout: Layout,
    out: BinaryIO,
    choice: Choice | None = None,
    level: int = DEFAULT_LEVEL,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Packed:
    """Write the entries of ``layout`` to ``out``. ``progress`` is given bytes read and bytes to read.

    Every entry is read twice, the first time for the manifest, which precedes the entries. So memory is bounded by the
    largest entry (and some 300 bytes for each), and entries are verified just before they are written.
    """
    return _Packing(layout, choice or Choice(), progress).run(out, level)


class _Packing:
    def __init__(self, layout: Layout, choice: Choice, progress: Callable[[int, int], object]) -> None:
        self._gatherer = Gatherer(layout, choice, load_keys(None), progress, reads=2)

    def run(self, out: BinaryIO, level: int) -> Packed:
        gatherer = self._gatherer
        chosen, manifest = self._choose()
        failed_before = self._failed
        gatherer.expect([found for found, _ in chosen])
        packed_entries = packed_bytes = seeded = 0
        with compressing(out, level) as stream:
            stream.write(manifest_member(manifest))
            for found, payload, record in self._read(chosen):
                stream.write(entry_header(found.name, len(payload), found.last_use_ns, record))
                stream.write(payload)
                stream.write(padding(len(payload)))
                packed_entries += 1
                packed_bytes += len(payload)
                seeded += gatherer.is_seeded(found)
                del payload  # else two are in memory while the next one is read
            stream.write(end_of_archive())
        changed = manifest.entries - packed_entries - (self._failed - failed_before)
        return Packed(**vars(gatherer.gathered(packed_entries, packed_bytes, seeded)), changed=changed)

    @property
    def _failed(self) -> int:
        return len(self._gatherer.left_out) + self._gatherer.refused

    def _choose(self) -> tuple[list[tuple[Found, int]], Manifest]:
        """Returns the entries to pack, each with its payload's length, and the manifest that describes them."""
        chosen: list[tuple[Found, int]] = []
        counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTED.values()}
        for found in self._gatherer.found:
            loaded = self._gatherer.load(found)
            if loaded is None:
                continue
            payload, blob = loaded
            metadata = _metadata(blob)
            chosen.append((found, len(payload)))
            for name, counted in _COUNTED.items():
                if isinstance(metadata.get(name), str):
                    counts[counted][metadata[name]] += 1
            del loaded, payload  # else two are in memory while the next one is read
        total = sum(size for _, size in chosen)
        kinds, arches, compilers = (dict(counts[name]) for name in ("kinds", "arches", "compilers"))
        return chosen, Manifest(len(chosen), total, kinds=kinds, arches=arches, compilers=compilers)

    def _read(self, chosen: list[tuple[Found, int]]) -> Iterator[tuple[Found, bytes, bytes]]:
        """Yields the chosen entries that are unchanged, each with its payload and record."""
        for found, size in chosen:
            loaded = self._gatherer.load(found)
            # A longer payload would make the manifest wrong, which readers check.
            if loaded is not None and len(loaded[0]) == size:
                payload, blob = loaded
                record = self._gatherer.whole_record(found.name, payload, blob)
                del loaded
                yield found, payload, record
                del payload


def _metadata(blob: bytes) -> dict[str, Any]:
    try:
        return decode(unpack(blob).tail) if blob else {}
    except ValueError:
        return {}  # of a version that knows more; packed as it is

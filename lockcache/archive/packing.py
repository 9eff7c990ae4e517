"""Packing: the verified entries of a directory, into one file.

Keeps invariant 1 (a hit is whole) for what is shipped (an entry that fails its digest is left out and counted) and
leaves the directory as it was: an entry that is packed was not used, so its place among the least recently used stays.
Takes no lock; writers and evictors go on, and what they remove meanwhile is left out.

The same entries, with the same last uses, give the same bytes: on any file system, for any owner, at any time (with one
release of libzstd and of lockcache).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import zstandard

from lockcache.archive.looking import Onlooker
from lockcache.archive.members import Manifest, end_of_archive, entry_header, manifest_member, padding, possible
from lockcache.filestream.entry import pack, unpack
from lockcache.lowlevel import Found, Layout, Selection, all_entries, describe_entry, load_keys
from lockcache.metadata import decode

#: As the zstd command has them. Cubins shrink to a third at 3 and to a quarter at 19, forty times as slowly.
LEVELS: Final = range(1, 23)
DEFAULT_LEVEL: Final = 3

#: Where the manifest counts what the metadata say.
_COUNTED: Final = {"kind": "kinds", "arch": "arches", "compiler": "compilers"}


@dataclass(frozen=True)
class Choice:
    """Which entries to pack."""

    selection: Selection = field(default_factory=Selection)
    #: Also entries without a record, which nothing can verify: those of cuda.core's own cache.
    include_unverified: bool = False


@dataclass(frozen=True)
class LeftOut:
    """An entry that should have been packed and could not be."""

    entry: str
    #: ``damaged`` or ``unreadable``.
    why: str


@dataclass(frozen=True)
class Packed:
    """What came of it."""

    entries: int
    #: Of payloads.
    bytes: int
    #: Left out: failed their digest.
    damaged: int
    #: Left out: are there, and cannot be read (EIO, EACCES).
    unreadable: int
    #: Left out: signed, and there is no such key here; or not signed, and there is a key here.
    refused: int
    #: Left out: have no record.
    unverified: int
    #: Left out: removed or rewritten while we packed.
    changed: int
    #: The damaged and the unreadable ones.
    left_out: tuple[LeftOut, ...]

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for and may be served is in the archive."""
        return not self.left_out


def pack_directory(
    layout: Layout,
    out: BinaryIO,
    choice: Choice | None = None,
    level: int = DEFAULT_LEVEL,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Packed:
    """Write the entries of ``layout`` to ``out``. ``progress`` is given bytes read and bytes to read.

    Every entry is read twice: once to know what the manifest, which comes first, has to say. So memory is bounded by
    the largest entry (and some 300 bytes for each), and what is written has been verified a moment ago.
    """
    return _Packing(layout, choice or Choice(), progress).run(out, level)


class _Packing:
    def __init__(self, layout: Layout, choice: Choice, progress: Callable[[int, int], object]) -> None:
        self._choice = choice
        self._layout = layout
        self._reader = Onlooker(layout, load_keys(None))
        self._left_out: list[LeftOut] = []
        self._progress = progress
        self._found = sorted(self._select(choice.selection))
        self._unverified = 0
        self._done_bytes = 0
        self._to_read_bytes = 2 * sum(found.size_bytes for found in self._found)

    def run(self, out: BinaryIO, level: int) -> Packed:
        chosen, manifest = self._choose()
        failed_before = self._failed
        self._to_read_bytes = self._done_bytes + sum(found.size_bytes for found, _ in chosen)
        packed_entries = packed_bytes = 0
        with zstandard.ZstdCompressor(level=level, write_checksum=True).stream_writer(out, closefd=False) as stream:
            stream.write(manifest_member(manifest))
            for found, payload, record in self._read(chosen):
                stream.write(entry_header(found.name, len(payload), found.last_use_ns, record))
                stream.write(payload)
                stream.write(padding(len(payload)))
                packed_entries += 1
                packed_bytes += len(payload)
                del payload  # else two are in memory while the next one is read
            stream.write(end_of_archive())
        damaged = sum(each.why == "damaged" for each in self._left_out)
        return Packed(
            packed_entries,
            packed_bytes,
            damaged,
            unreadable=len(self._left_out) - damaged,
            refused=self._reader.refused,
            unverified=self._unverified,
            changed=manifest.entries - packed_entries - (self._failed - failed_before),
            left_out=tuple(self._left_out),
        )

    @property
    def _failed(self) -> int:
        return len(self._left_out) + self._reader.refused

    def _choose(self) -> tuple[list[tuple[Found, int]], Manifest]:
        """The entries to pack, each with its payload's length, and what they are."""
        chosen: list[tuple[Found, int]] = []
        counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTED.values()}
        for found in self._found:
            loaded = self._load(found)
            if loaded is None:
                continue
            payload, blob = loaded
            metadata = _metadata(blob)
            if not blob and not self._choice.include_unverified:
                self._unverified += 1
            else:
                chosen.append((found, len(payload)))
                for name, counted in _COUNTED.items():
                    if isinstance(metadata.get(name), str):
                        counts[counted][metadata[name]] += 1
            del loaded, payload  # else two are in memory while the next one is read
        total = sum(size for _, size in chosen)
        kinds, arches, compilers = (dict(counts[name]) for name in ("kinds", "arches", "compilers"))
        return chosen, Manifest(len(chosen), total, kinds=kinds, arches=arches, compilers=compilers)

    def _select(self, selection: Selection) -> Iterator[Found]:
        """The entries that are meant, and those of which nothing can be said: they are left out by name."""
        now_ns = time.time_ns()
        for found in all_entries(self._layout):
            if selection.admits(found, now_ns) and (not selection.needs_record or self._is_meant(found, selection)):
                yield found

    def _is_meant(self, found: Found, selection: Selection) -> bool:
        described = describe_entry(self._layout, found)
        return described is not None and (described.record in ("damaged", "unreadable") or selection.matches(described))

    def _read(self, chosen: list[tuple[Found, int]]) -> Iterator[tuple[Found, bytes, bytes]]:
        """Payload and record of each, as far as they are still what was chosen."""
        for found, size in chosen:
            loaded = self._load(found)
            # A longer one would make the manifest a lie, and readers hold archives to it.
            if loaded is not None and len(loaded[0]) == size:
                payload, blob = loaded
                record = _plain(found.name, payload, blob)
                del loaded
                yield found, payload, record
                del payload

    def _load(self, found: Found) -> tuple[bytes, bytes] | None:
        damaged, refused = self._reader.damaged, self._reader.refused
        loaded = self._reader.load(found.name)
        self._done_bytes += found.size_bytes
        self._progress(self._done_bytes, self._to_read_bytes)
        if self._reader.damaged > damaged:
            self._left_out.append(LeftOut(found.name, "damaged"))
        elif loaded is None and self._reader.refused == refused and os.path.lexists(self._layout.entry(found.name)):
            self._left_out.append(LeftOut(found.name, "unreadable"))
        return loaded


def _plain(name: str, payload: bytes, blob: bytes) -> bytes:
    """The record as anybody can verify it, wherever its parts were kept; empty for none."""
    if not blob:
        return b""
    record = unpack(blob)
    return pack(name, payload, possible(record)._replace(payload_bytes=len(payload)))


def _metadata(blob: bytes) -> dict[str, Any]:
    try:
        return decode(unpack(blob).tail) if blob else {}
    except ValueError:
        return {}  # of a version that knows more; packed as it is

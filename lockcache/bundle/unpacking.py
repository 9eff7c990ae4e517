# SPDX-License-Identifier: Apache-2.0
"""Unpacking: entries from a bundle into a directory that others may be using.

Keeps invariants 1 (a hit is whole) to 5 (death is free) by going through the directory's own writer: each entry is
verified on the way in, room is reserved before a byte of it is on disk, it appears whole or not at all, and a death
leaves nothing that anybody waits for. Only the 32 bytes of a name decide where something is written. Memory is bounded
by the largest entry that is accepted: it is there once, and the one that it would replace is not held too. Time is
bounded by the size of the file: content that compresses to almost nothing is not a list of entries.

The last use of an entry is what it was where it was packed (but never in the future, which would keep it for ever), so
that of old and unpacked entries the cap keeps those that were used last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from lockcache.bundle.compression import Decompressed
from lockcache.bundle.gathering import possible
from lockcache.bundle.reading import Onlooker, StatedUse
from lockcache.errors import ArchiveError
from lockcache.filestream import EntryHead, EntryWriter
from lockcache.filestream.bundle import BundleStream
from lockcache.filestream.entry import HEAD_BYTES, LARGEST_RECORD_BYTES, is_signed, is_understood, is_whole, unpack
from lockcache.lowlevel import CacheDirectory, load_keys
from lockcache.sizes import counted

__all__ = ["LARGEST_ENTRY_BYTES", "Acceptance", "Packed", "Unpacked", "unpack_bundle"]

#: The largest entry that is accepted by default: it has to fit into memory, and no known kernel is a tenth.
LARGEST_ENTRY_BYTES: Final = 1 << 30

# The bytes that the name of an entry takes, however it is compressed: 32 of a hash. And entries that any file may have.
_LEAST_ENTRY_BYTES: Final = 32
_ALWAYS_ALLOWED: Final = 1000

# Problems that are reported one by one; all are counted.
_MOST_REPORTED: Final = 20


@dataclass(frozen=True)
class Acceptance:
    """The rules for accepting entries of a bundle."""

    #: Replace entries that are there. By default they are kept: they may be newer.
    overwrite: bool = False
    #: Give up at the first entry that is not as it should be.
    strict: bool = False
    #: The bytes of payload and record together.
    largest_entry_bytes: int = LARGEST_ENTRY_BYTES


@dataclass
class Unpacked:
    """The outcome of unpacking, in counts of entries."""

    stored: int = 0
    #: The bytes of payloads stored.
    bytes: int = 0
    #: Were there already.
    kept: int = 0
    #: Failed their digest.
    damaged: int = 0
    #: State sizes beyond what is accepted.
    refused: int = 0
    #: Could not be stored: larger than the cap, disk full, lock not free in time.
    dropped: int = 0
    #: Made room for others.
    evicted: int = 0
    freed_bytes: int = 0
    #: Why, for the first of those that were not as they should be.
    problems: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether no entry was damaged, refused or dropped; one that the cap evicted does not count."""
        return not (self.damaged or self.refused or self.dropped)


class Packed:
    """A file to unpack, which has proven to begin as a bundle. Raises :class:`ArchiveError` for other files."""

    def __init__(self, file: BinaryIO) -> None:
        self.source = Decompressed(file)
        self.entries = BundleStream(self.source)


def unpack_bundle(
    packed: Packed,
    directory: CacheDirectory,
    acceptance: Acceptance | None = None,
    progress: Callable[[int], object] = lambda read_bytes: None,
    *,
    done: Unpacked | None = None,
) -> Unpacked:
    """Store the entries of a bundle. ``progress`` is given the bytes of the file that were read so far.
    ``done`` is counted in as it goes on, for a caller that reports also what was done before an error.

    Raises :class:`ArchiveError` for a file that is damaged or cut off (what came before stays, whole), and the
    :class:`OSError` of a directory that may not be written.
    """
    unpacking = _Unpacking(directory, acceptance or Acceptance(), done or Unpacked())
    try:
        for count, head in enumerate(packed.entries, 1):
            if count > _ALWAYS_ALLOWED + packed.source.packed_bytes // _LEAST_ENTRY_BYTES:
                raise ArchiveError(f"{count} entries in {packed.source.packed_bytes} bytes, which no bundle has")
            unpacking.take(head, packed.entries.read)
            progress(packed.source.packed_bytes)
    except ArchiveError as error:
        raise ArchiveError(f"{error} ({counted(unpacking.done.stored, 'entry')} stored before that)") from error
    return unpacking.done


class _Unpacking:
    def __init__(self, directory: CacheDirectory, acceptance: Acceptance, done: Unpacked) -> None:
        self._directory = directory
        self._acceptance = acceptance
        self._use = StatedUse(directory.layout.root)
        directory.recency = self._use
        self._keys = keys = load_keys(None)
        self._reader = Onlooker(directory.layout, keys)
        timeout = directory.locks[0].timeout_seconds
        self._writer = EntryWriter(directory, timeout, fsync=False, use_record_files=False, keys=keys)
        self.done = done

    def take(self, head: EntryHead, read: Callable[[], tuple[bytes, bytes]]) -> None:
        """Store one entry, or count why not. Unless ``read`` is called nothing of it is in memory."""
        done, name = self.done, head.name.hex()
        size_bytes, most_bytes = head.payload_bytes + head.record_bytes, self._acceptance.largest_entry_bytes
        if not HEAD_BYTES <= head.record_bytes <= LARGEST_RECORD_BYTES:
            done.refused += 1
            return self._tell(name, f"its record takes {head.record_bytes} bytes; accepted: {LARGEST_RECORD_BYTES}")
        if size_bytes > most_bytes:
            done.refused += 1
            return self._tell(name, f"{size_bytes} bytes; accepted: {most_bytes} (--max-entry)")
        limit_bytes = self._directory.limit_bytes()
        if limit_bytes is not None and size_bytes > limit_bytes:
            done.dropped += 1
            return self._tell(name, f"{size_bytes} bytes are more than the directory's cap leaves", fatal=False)
        # Looked for before the payload is read: the two need not be in memory at once.
        is_there = not self._acceptance.overwrite and self._reader.load(name) is not None
        try:
            blob, payload = read()
        except MemoryError:
            raise ArchiveError(f"an entry of {size_bytes} bytes does not fit into memory; see --max-entry") from None
        if is_signed(blob) and not (self._keys is not None and self._keys.knows(blob)):
            done.refused += 1
            self._tell(name, "signed with a key that is not here")
        elif not self._is_whole(blob, name, payload):
            done.damaged += 1
            self._tell(name, "not what was packed: its digest is another")
        elif is_there:
            done.kept += 1
        else:
            self._store(head, blob, payload)
        return None

    def _is_whole(self, blob: bytes, name: str, payload: bytes) -> bool:
        if self._keys is not None and is_signed(blob):
            return self._keys.is_whole(blob, name, payload)
        return is_understood(blob) and is_whole(blob, name, payload)

    def _store(self, head: EntryHead, blob: bytes, payload: bytes) -> None:
        done, record = self.done, possible(unpack(blob))._replace(payload_bytes=len(payload))
        # Of a bundle that does not state uses, an entry counts as used when it was compiled.
        self._use.last_use_ns = min(head.last_use_ns or record.created_ns, time.time_ns())
        written = self._writer.store(head.name.hex(), payload, record)
        done.evicted += written.evicted.entries
        done.freed_bytes += written.evicted.bytes
        if written.is_dropped:
            done.dropped += 1
            return self._tell(head.name.hex(), written.why, fatal=False)
        done.stored += 1
        done.bytes += len(payload)
        return None

    def _tell(self, name: str, problem: str, *, fatal: bool = True) -> None:
        text = f"{name}: {problem}"
        if fatal and self._acceptance.strict:
            raise ArchiveError(text)
        if len(self.done.problems) < _MOST_REPORTED:
            self.done.problems.append(text)

# SPDX-License-Identifier: Apache-2.0
"""The bytes of a bundle: a head, the entries, a table of their places, and an end that says where the table is.

====== ============ =================================================================
part   bytes        meaning
====== ============ =================================================================
head   64           magic ``LCBUNDLE``, version (u32), alignment (u32), zeros
entry  multiple     magic ``LCENTRY`` and a zero, name (32, the sha256 of the key), last use (u64, ns since
       of 64        1970, 0 if unknown), bytes of the payload (u64), bytes of the record (u32), zeros up to 64;
                    then the record, head and tail in one (:mod:`lockcache.filestream.entry.codec`), then the
                    payload, then zeros up to the next multiple of 64
table  56 a slot    name, offset of the record (u64), bytes of the payload (u64), bytes of the record
                    (u32), a byte that is not 0 in a directory's own copy
                    for an entry that it does not serve (:mod:`.seed_marks`), zeros; an empty slot is zeros
end    64           magic ``LCBTABLE``, offset of the table, slots, entries (u64 each), xxh3-128 of
                    head, table and what precedes it in the end, zeros
====== ============ =================================================================

Little-endian. The number of slots is a power of two and at least twice the entries. A name stands in the slot of its
first eight bytes or in one of the next 63, with no empty one before it. So opening reads the table once and builds
nothing from it, and a lookup is a comparison or two, in a file of a hundred entries or of a million. An entry states
its name and sizes once more for those who read front to back, from a pipe or a compressed file: the table comes last.

The table's digest detects accidents only, and nothing relies on it: an entry is served by its own record, which binds
name and bytes, and every place is checked against the file's size. So the maker of a file can only decide which entries
are missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from xxhash import xxh3_128, xxh3_128_digest

__all__ = [
    "ALIGNMENT",
    "END_BYTES",
    "ENTRY_HEAD_BYTES",
    "HIDDEN_AT",
    "MOST_PROBES",
    "SLOT",
    "START_BYTES",
    "EntryHead",
    "Place",
    "Table",
    "begins",
    "bundle_bytes",
    "encode_end",
    "encode_entry_head",
    "encode_start",
    "entry_bytes",
    "is_whole",
    "largest_table_bytes",
    "lay_out",
    "matches",
    "padding_bytes",
    "read_end",
    "read_entry_head",
    "refuse_start",
]

#: A cache line, so that a payload's first line is not another's last.
ALIGNMENT: Final = 64
START_BYTES: Final = 64
END_BYTES: Final = 64
#: Name, offset, bytes of the payload, bytes of the record.
SLOT: Final = struct.Struct("<32sQQI4x")
#: The offset in a slot of the flag that the entry is not served.
HIDDEN_AT: Final = 52
#: The largest distance of a name from its first slot. If half full, one in 10**12 tables of a million names needs more.
MOST_PROBES: Final = 64
# A table that is an eighth full needs more than two probes once in a million.
_MOST_DOUBLINGS: Final = 3

_MAGIC: Final = b"LCBUNDLE"
_END_MAGIC: Final = b"LCBTABLE"
_ENTRY_MAGIC: Final = b"LCENTRY\0"
_VERSION: Final = 2
_START: Final = struct.Struct("<8sII48x")
_END: Final = struct.Struct("<8sQQQ16s16x")
_ENTRY_HEAD: Final = struct.Struct("<8s32sQQI4x")
#: The bytes of an entry that precede its record.
ENTRY_HEAD_BYTES: Final = _ENTRY_HEAD.size
_DIGESTED_END_BYTES: Final = 32
_NAME_BYTES: Final = 32


class Place(NamedTuple):
    """The place of an entry in the file."""

    #: The sha256 of its key.
    name: bytes
    #: The offset of the record, which the payload follows.
    offset: int
    payload_bytes: int
    record_bytes: int

    @property
    def taken_bytes(self) -> int:
        """The bytes that the entry takes in the file."""
        return entry_bytes(self.record_bytes + self.payload_bytes)


class EntryHead(NamedTuple):
    """The statements of an entry that precede its record."""

    #: The sha256 of its key.
    name: bytes
    #: 0 if it is not known.
    last_use_ns: int
    payload_bytes: int
    record_bytes: int


class Table(NamedTuple):
    """The place of the table, and its size."""

    offset: int
    slots: int
    entries: int


def entry_bytes(size_bytes: int) -> int:
    """Returns the bytes that an entry takes in a file, of which record and payload are ``size_bytes``."""
    return ENTRY_HEAD_BYTES + size_bytes + padding_bytes(size_bytes)


def padding_bytes(size_bytes: int) -> int:
    """Returns the number of zeros behind a record and payload of ``size_bytes``."""
    return -size_bytes % ALIGNMENT


def encode_entry_head(head: EntryHead) -> bytes:
    """Returns what precedes the record of an entry."""
    return _ENTRY_HEAD.pack(_ENTRY_MAGIC, *head)


def read_entry_head(blob: bytes) -> EntryHead | None:
    """Returns what precedes a record; ``None`` for anything else, such as the beginning of the table."""
    magic, *fields = _ENTRY_HEAD.unpack(blob)
    return EntryHead._make(fields) if magic == _ENTRY_MAGIC else None


def begins(head: bytes) -> bool:
    """Returns whether a file's first bytes are a bundle's."""
    return head.startswith(_MAGIC)


def encode_start() -> bytes:
    """Returns the head."""
    return _START.pack(_MAGIC, _VERSION, ALIGNMENT)


def bundle_bytes(taken_bytes: int, entries: int) -> int:
    """Returns the size of a file with so many entries, which take so many bytes together."""
    return START_BYTES + taken_bytes + _slots_for(entries) * SLOT.size + END_BYTES


def largest_table_bytes(entries: int) -> int:
    """Returns the size of the largest table that :func:`lay_out` makes of so many entries."""
    return (_slots_for(entries) << _MOST_DOUBLINGS) * SLOT.size


def lay_out(places: list[Place]) -> bytes:
    """Returns the table of these places, of which no two have one name.

    Raises :class:`ValueError` for names that nobody gets by hashing: they begin alike.
    """
    slots = _slots_for(len(places))
    for _ in range(_MOST_DOUBLINGS):
        table = _fill(places, slots)
        if table is not None:
            return table
        slots *= 2
    raise ValueError(f"more than {MOST_PROBES} entries have names that begin alike: not digests of keys")


def _slots_for(entries: int) -> int:
    return 1 << max(1, (2 * entries - 1).bit_length())


def _fill(places: list[Place], slots: int) -> bytes | None:
    """Returns the table with so many slots; ``None`` if a name would stand too far from its first one."""
    table = bytearray(slots * SLOT.size)
    is_taken = bytearray(slots)
    for place in places:
        first = int.from_bytes(place.name[:8], "little")
        for probe in range(MOST_PROBES):
            slot = (first + probe) % slots
            if not is_taken[slot]:
                break
        else:
            return None
        is_taken[slot] = True
        SLOT.pack_into(table, slot * SLOT.size, *place)
    return bytes(table)


def encode_end(start: bytes, table: bytes, offset: int, entries: int) -> bytes:
    """Returns the end of a file with this head and this table at ``offset``."""
    numbers = offset, len(table) // SLOT.size, entries
    unsigned = _END.pack(_END_MAGIC, *numbers, b"")
    return _END.pack(_END_MAGIC, *numbers, _digest(start, xxh3_128_digest(table), unsigned))


def refuse_start(start: bytes) -> None:
    """Raise :class:`ValueError` for the head of a file that is not a bundle, or of another version."""
    if len(start) < START_BYTES or start[:8] != _MAGIC:
        raise ValueError("it is not a bundle")
    _, version, alignment = _START.unpack(start)
    if version != _VERSION or alignment != ALIGNMENT:
        raise ValueError(f"it is a bundle of version {version}, and this lockcache knows version {_VERSION}")


def read_end(start: bytes, end: bytes, size_bytes: int) -> Table:
    """Returns where the table of a file of ``size_bytes`` is, by its head and its end.

    Raises :class:`ValueError` with what is wrong. The table's digest is not compared: see :func:`is_whole`.
    """
    refuse_start(start)
    if len(end) < END_BYTES:
        raise ValueError("it is not a bundle")
    magic, offset, slots, entries, _ = _END.unpack(end)
    if magic != _END_MAGIC or offset < START_BYTES or offset + slots * SLOT.size + END_BYTES != size_bytes:
        raise ValueError("it is damaged: its end does not fit it, so it was cut off, lengthened or changed")
    if not slots or slots & (slots - 1) or entries > slots:
        raise ValueError(f"it is damaged: {slots} slots for {entries} entries")
    return Table(offset, slots, entries)


def is_whole(start: bytes, table: Iterable[memoryview | bytes], end: bytes) -> bool:
    """Returns whether head, table and end match their digest. The table comes in parts: it may exceed the memory."""
    digest = xxh3_128()
    for part in table:
        digest.update(part)
    return matches(start, digest.digest(), end)


def matches(start: bytes, table_digest: bytes, end: bytes) -> bool:
    """Returns what :func:`is_whole` does, by the xxh3-128 of the table."""
    return end[_DIGESTED_END_BYTES : _DIGESTED_END_BYTES + 16] == _digest(start, table_digest, end)


def _digest(start: bytes, table_digest: bytes, end: bytes) -> bytes:
    return xxh3_128_digest(start + table_digest + end[:_DIGESTED_END_BYTES])

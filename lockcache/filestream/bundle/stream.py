# SPDX-License-Identifier: Apache-2.0
"""Reading a bundle front to back, from a pipe or a compressed file: its entries, one at a time.

Trusts nothing of the file: whatever an entry states, no more is read into memory than the caller asks for, and what the
caller does not ask for is passed over in parts. Verifies nothing: an entry's own record does, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from xxhash import xxh3_128

from lockcache.errors import ArchiveError
from lockcache.filestream.bundle_format import (
    END_BYTES,
    ENTRY_HEAD_BYTES,
    START_BYTES,
    EntryHead,
    encode_start,
    largest_table_bytes,
    matches,
    padding_bytes,
    read_end,
    read_entry_head,
    refuse_start,
)

__all__ = ["BundleStream"]

# Bytes that are read at once and dropped.
_CHUNK_BYTES: Final = 1 << 20

_CUT_OFF: Final = "it ends in the middle: it was cut off"


class Source(Protocol):
    """Decompressed bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Returns up to ``size`` bytes; none at the end."""


class BundleStream:
    """The entries of a bundle in the order of the file. Raises :class:`ArchiveError` for what is not a bundle."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._offset = self._record_bytes = self._payload_bytes = self._padding_bytes = 0
        self._entries = 0
        self._start = self._read_up_to(START_BYTES)
        if len(self._start) < START_BYTES and encode_start().startswith(self._start):
            raise ArchiveError(_CUT_OFF)
        try:
            refuse_start(self._start)
        except ValueError as error:
            raise ArchiveError(f"{error}") from None

    def __iter__(self) -> Iterator[EntryHead]:
        """Yields the head of each entry; passes over what :meth:`read` was not asked for.

        Raises :class:`ArchiveError` for a file that is cut off or damaged, after the last entry before that place.
        """
        while True:
            self._pass_over()
            at = self._offset
            blob = self._read_exactly(ENTRY_HEAD_BYTES)
            head = read_entry_head(blob)
            if head is None:
                return self._finish(at, blob)
            self._entries += 1
            self._record_bytes, self._payload_bytes = head.record_bytes, head.payload_bytes
            self._padding_bytes = padding_bytes(head.record_bytes + head.payload_bytes)
            yield head

    def read(self) -> tuple[bytes, bytes]:
        """Returns record and payload of the last entry. Requires: they fit into memory."""
        record_bytes, payload_bytes = self._record_bytes, self._payload_bytes
        self._record_bytes = self._payload_bytes = 0
        return self._read_exactly(record_bytes), self._read_exactly(payload_bytes)

    def _pass_over(self) -> None:
        left = self._record_bytes + self._payload_bytes + self._padding_bytes
        self._record_bytes = self._payload_bytes = self._padding_bytes = 0
        while left:
            left -= len(self._read_exactly(min(left, _CHUNK_BYTES)))

    def _finish(self, table_offset: int, read: bytes) -> None:
        """Read what follows the entries, of which ``read`` is the beginning, and compare it with them."""
        last, digest = read, xxh3_128()
        most_bytes = largest_table_bytes(self._entries) + END_BYTES
        while self._offset - table_offset <= most_bytes and (part := self._read_up_to(_CHUNK_BYTES)):
            last += part
            digest.update(last[:-END_BYTES])
            last = last[-END_BYTES:]
        try:
            table = read_end(self._start, last, self._offset)
        except ValueError as error:
            raise ArchiveError(f"{error}") from None
        is_of_these = (table.offset, table.entries) == (table_offset, self._entries)
        if not (is_of_these and matches(self._start, digest.digest(), last)):
            raise ArchiveError("it is damaged: its table is not that of its entries")

    def _read_exactly(self, size_bytes: int) -> bytes:
        read = self._read_up_to(size_bytes)
        if len(read) < size_bytes:
            raise ArchiveError(_CUT_OFF)
        return read

    def _read_up_to(self, size_bytes: int) -> bytes:
        """Returns the next bytes, or fewer at the end of the source. A pipe returns few at once."""
        parts, missing = [], size_bytes
        # All at once into one buffer where the source has it: joining parts needs the memory twice.
        while missing and (part := self._source.read(missing)):
            parts.append(part)
            missing -= len(part)
        self._offset += size_bytes - missing
        return parts[0] if len(parts) == 1 else b"".join(parts)

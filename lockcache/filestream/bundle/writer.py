# SPDX-License-Identifier: Apache-2.0
"""Writing a bundle: entries one after the other, then the table of their places.

Memory is bounded by the largest entry, and a hundred bytes for each. The same entries in the same order give the same
bytes. The caller replaces the older file once this one is whole.
"""

from __future__ import annotations

from typing import BinaryIO

from lockcache.filestream.bundle_format import (
    ENTRY_HEAD_BYTES,
    START_BYTES,
    EntryHead,
    Place,
    encode_end,
    encode_entry_head,
    encode_start,
    lay_out,
    padding_bytes,
)

__all__ = ["BundleWriter"]


class BundleWriter:
    """Writes a bundle to ``out``, front to back."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._places: list[Place] = []
        self._offset = START_BYTES
        #: The bytes of payloads.
        self.payload_bytes = 0
        out.write(encode_start())

    @property
    def entries(self) -> int:
        return len(self._places)

    def add(self, name: bytes, payload: bytes | memoryview, blob: bytes, last_use_ns: int = 0) -> None:
        """Write an entry: the sha256 of its key, its payload and its whole record. No name may come twice."""
        place = Place(name, self._offset + ENTRY_HEAD_BYTES, len(payload), len(blob))
        self._places.append(place)
        self._out.write(encode_entry_head(EntryHead(name, max(0, last_use_ns), len(payload), len(blob))))
        self._out.write(blob)
        self._out.write(payload)
        self._out.write(bytes(padding_bytes(len(blob) + len(payload))))
        self._offset += place.taken_bytes
        self.payload_bytes += len(payload)

    def finish(self) -> None:
        """Write the table and the end."""
        table = lay_out(self._places)
        self._out.write(table)
        self._out.write(encode_end(encode_start(), table, self._offset, len(self._places)))

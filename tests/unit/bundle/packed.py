# SPDX-License-Identifier: Apache-2.0
"""Packed bundles: of a directory, and with entries that no packer writes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import zstandard

from lockcache.bundle.compression import UNCOMPRESSED, compressing
from lockcache.bundle.gathering import Choice, Gathered
from lockcache.bundle.making import make_bundle
from lockcache.bundle.unpacking import Acceptance, Packed, Unpacked, unpack_bundle
from lockcache.filestream.bundle_format import (
    EntryHead,
    Place,
    encode_end,
    encode_entry_head,
    encode_start,
    lay_out,
    padding_bytes,
)
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.codec import Record, pack

CREATED_NS = 1_700_000_000_123_456_789
USED_NS = 1_750_000_000_987_654_321


def packed(
    root: Path,
    choice: Choice | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
    level: int = UNCOMPRESSED,
) -> tuple[bytes, Gathered]:
    out = io.BytesIO()
    with compressing(out, level) as stream:
        done = make_bundle(Layout(str(root)), stream, choice, progress, is_packed=True)
    return out.getvalue(), done


def unpacked(
    content: bytes,
    root: Path,
    acceptance: Acceptance | None = None,
    progress: Callable[[int], object] = lambda read_bytes: None,
) -> Unpacked:
    directory = CacheDirectory(str(root), 5.0)
    try:
        return unpack_bundle(Packed(io.BytesIO(content)), directory, acceptance, progress)
    finally:
        directory.close()


def compress(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


def end_of(body: bytes, entries: int, table: bytes | None = None) -> bytes:
    """Returns the table and the end that a reader from front to back expects behind ``body``."""
    if table is None:
        table = lay_out([Place(number.to_bytes(32, "little"), 64, 0, 44) for number in range(entries)])
    return table + encode_end(encode_start(), table, len(body), entries)


def packed_of(*entries: bytes) -> bytes:
    """Returns a bundle of these entries, in their order."""
    body = encode_start() + b"".join(entries)
    return body + end_of(body, len(entries))


def entry(
    key: bytes,
    payload: bytes,
    *,
    name_of: bytes | None = None,
    record: bytes | None = None,
    used_ns: int = USED_NS,
) -> bytes:
    """Returns a valid entry, except for the name or the record if they are given."""
    name = entry_name(key)
    if record is None:
        record = pack(name, payload, Record(len(payload), CREATED_NS, 7, b""))
    shown = name if name_of is None else entry_name(name_of)
    head = EntryHead(bytes.fromhex(shown), used_ns, len(payload), len(record))
    return encode_entry_head(head) + record + payload + bytes(padding_bytes(len(record) + len(payload)))


def head_of(key: bytes, payload_bytes: int, record_bytes: int) -> bytes:
    """Returns the head of an entry that states these sizes."""
    return encode_entry_head(EntryHead(bytes.fromhex(entry_name(key)), USED_NS, payload_bytes, record_bytes))

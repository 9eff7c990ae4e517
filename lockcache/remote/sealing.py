# SPDX-License-Identifier: Apache-2.0
"""The value that a server keeps of an entry: making one, and deciding whether an answer is believed.

Keeps invariant 1 (a hit is whole) against a server that is not trusted: a value is the entry's record and its payload,
and is believed only if the record's digest, or its signature where there are keys, binds this payload to this name. So
other bytes, a cut answer or another key's value are misses. A value that an honest writer once stored under that key is
believed, also if it is not the newest: keys are digests of content.
"""

from __future__ import annotations

from lockcache.filestream.entry import (
    HEAD_BYTES,
    LARGEST_RECORD_BYTES,
    KeyRing,
    Record,
    pack,
    refuse_unless_whole,
)

__all__ = ["seal", "unseal"]


def seal(name: str, payload: bytes, record: Record, keys: KeyRing | None) -> bytes:
    """Returns the value of an entry: its record, signed where there are keys, then its payload."""
    return (pack if keys is None else keys.pack)(name, payload, record) + payload


def unseal(name: str, value: bytes, keys: KeyRing | None) -> tuple[bytes, bytes]:
    """Returns payload and record of a value. Raises :class:`ValueError` if no writer stored it under this name."""
    tail_bytes = int.from_bytes(value[4:8], "little")
    if len(value) < HEAD_BYTES + tail_bytes or tail_bytes > LARGEST_RECORD_BYTES:
        raise ValueError("it is not an entry")
    blob, payload = value[: HEAD_BYTES + tail_bytes], value[HEAD_BYTES + tail_bytes :]
    refuse_unless_whole(name, payload, blob, keys)
    return payload, blob

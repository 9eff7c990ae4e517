"""Values that carry their own proof: which key they belong to, who wrote them, which write it was, how long, a digest.

So that a reader needs nothing but the value to tell a torn read (the digest fails) from a foreign one (the key does).
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NamedTuple

__all__ = ["HEADER_BYTES", "Proof", "prove", "value_for"]

# Key digest, writer, serial, length of the whole value.
_HEADER: Final = struct.Struct("<16sIII")
_DIGEST_BYTES: Final = 16
HEADER_BYTES: Final = _HEADER.size + _DIGEST_BYTES


class Proof(NamedTuple):
    writer: int
    serial: int


def value_for(key: bytes, writer: int, serial: int, size_bytes: int = 1024) -> bytes:
    """A value of ``size_bytes`` (at least :data:`HEADER_BYTES`), different for each key, writer and serial."""
    header = _HEADER.pack(_digest(key), writer, serial, size_bytes)
    seed = _digest(header)
    body = (seed * (size_bytes // _DIGEST_BYTES + 1))[: size_bytes - HEADER_BYTES]
    return header + body + _digest(header + body)


def prove(key: bytes, value: bytes) -> Proof:
    """Who wrote ``value``; :class:`AssertionError` if it is torn, or not a value of ``key``."""
    owner, writer, serial, size_bytes = _HEADER.unpack_from(value)
    assert len(value) == size_bytes, f"torn: {len(value)} bytes of {size_bytes}"
    assert _digest(value[:-_DIGEST_BYTES]) == value[-_DIGEST_BYTES:], "torn: the digest does not match"
    assert owner == _digest(key), "foreign: a value of another key"
    return Proof(writer, serial)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()

"""Values that prove by themselves which write of which key they are, and that they are whole.

A value is a head and a body. The head names run, key, writer, serial, begin and length, and holds a BLAKE2b digest over
all of that and the body, so that bytes put together from two values, cut, emptied or altered are recognised without
asking anybody. BLAKE2b and not the cache's own xxh3: a checker must not share the mistakes of what it checks.
"""

from __future__ import annotations

import hashlib
import random
import struct
from typing import NamedTuple

from lockcache_stress.judge.register import Stamp

_HEAD = struct.Struct("<8s8sIIQQI")
_MAGIC = b"lcstress"
_DIGEST_BYTES = 16

#: A value cannot be smaller than its proof.
SMALLEST_BYTES = _HEAD.size + _DIGEST_BYTES

# Bodies are windows of one random pool: making 64 KiB again for each write would take longer than the write.
_POOL = random.Random(0).randbytes(1 << 20)


class Proof(NamedTuple):
    """What a whole value says of itself."""

    token: bytes
    key: int
    stamp: Stamp


def make_value(token: bytes, key: int, stamp: Stamp, size_bytes: int) -> bytes:
    """A value of ``size_bytes`` (at least :data:`SMALLEST_BYTES`) for this write."""
    size = max(size_bytes, SMALLEST_BYTES)
    head = _HEAD.pack(_MAGIC, token, key, stamp.writer, stamp.serial, stamp.started_us, size)
    body = _body(key * 1_000_003 + stamp.writer * 10_007 + stamp.serial * 101, size - SMALLEST_BYTES)
    return head + _digest(head, body) + body


def parse_value(value: bytes) -> Proof | None:
    """What ``value`` proves, or ``None`` if it is not a whole value of anybody."""
    if len(value) < SMALLEST_BYTES:
        return None
    head, body = value[: _HEAD.size], memoryview(value)[SMALLEST_BYTES:]
    magic, token, key, writer, serial, started_us, size = _HEAD.unpack(head)
    if magic != _MAGIC or size != len(value) or value[_HEAD.size : SMALLEST_BYTES] != _digest(head, body):
        return None
    return Proof(token, key, Stamp(writer, 0, serial, started_us))


def _body(seed: int, size_bytes: int) -> bytes:
    start = seed % len(_POOL)
    repeats = -(-(start + size_bytes) // len(_POOL))
    return (_POOL * repeats)[start : start + size_bytes] if repeats > 1 else _POOL[start : start + size_bytes]


def _digest(head: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(head, digest_size=_DIGEST_BYTES)
    digest.update(body)
    return digest.digest()

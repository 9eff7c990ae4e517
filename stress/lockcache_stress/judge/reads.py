# SPDX-License-Identifier: Apache-2.0
"""Verdicts on reads: right, torn, foreign or stale. Pure: computed from bytes and the knowledge when the read began.

- torn: not a whole value of any key, or code with the metadata of another write (invariant 1, a hit is whole)
- foreign: a whole value, but not one that any process wrote under this key (invariant 1, a hit is whole)
- stale: an older value than one whose write had returned before the read began (invariant 2, last write wins)

A miss is never judged: eviction may happen at any time. Not proven: that a hit is the *latest* of overlapping writes.

Values prove by themselves which write of which key they are, and that they are whole. A value is a head and a body. The
head names run, key, writer, serial, begin and length, and holds a BLAKE2b digest over all of these and the body, so
that bytes of two values, and values that were cut, emptied or altered, are recognised without any other knowledge. The
digest is BLAKE2b and not the cache's own xxh3, because a check must not share the mistakes of the cache.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from lockcache_stress.judge.register import Register, Snapshot, Stamp

_STAMP = "stamp"
_HEAD = struct.Struct("<8s8sIIQQI")
_MAGIC = b"lcstress"
_DIGEST_BYTES = 16

#: A value cannot be smaller than its proof.
SMALLEST_BYTES = _HEAD.size + _DIGEST_BYTES

# Bodies are parts of one random pool, because making 64 KiB for each write would take longer than the write.
_POOL = random.Random(0).randbytes(1 << 20)


class Verdict(Enum):
    """The verdict on the bytes of a read."""

    OK = "ok"
    TORN = "torn"
    STALE = "stale"
    FOREIGN = "foreign"


class Judge(Protocol):
    """Judges the result of a read."""

    def judge(
        self, key: int, snapshot: Snapshot, code: bytes, metadata: Mapping[str, Any] | None
    ) -> tuple[Verdict, Stamp | None]:
        """Returns the verdict, and the write that the bytes come from, if they prove it."""


class ByteJudge:
    """Judges values that carry their own proof."""

    def __init__(self, token: bytes, register: Register) -> None:
        self._token = token
        self._register = register

    def judge(
        self, key: int, snapshot: Snapshot, code: bytes, metadata: Mapping[str, Any] | None
    ) -> tuple[Verdict, Stamp | None]:
        """Judge a read, see :class:`Judge`; ``metadata`` is not needed."""
        proof = parse_value(code)
        if proof is None:
            return Verdict.TORN, None
        if proof.token != self._token or proof.key != key or not self._register.knows(proof.stamp):
            return Verdict.FOREIGN, None
        if self._register.is_stale(snapshot, proof.stamp):
            return Verdict.STALE, proof.stamp
        return Verdict.OK, proof.stamp


class Contents(Protocol):
    """The legal contents of every key: ``contents[key][variant]``."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: int, /) -> Sequence[bytes]: ...


class ProgramJudge:
    """Judges compiled programs against references that were compiled apart.

    Metadata names the exact write. Without metadata the bytes prove which variant they are but not which write of it:
    they are stale only if no write of that variant can excuse them.
    """

    def __init__(self, references: Contents, register: Register) -> None:
        """``references[key][variant]`` are the legal contents."""
        self._references = references
        self._register = register
        self._known: set[bytes] = set()

    def judge(
        self, key: int, snapshot: Snapshot, code: bytes, metadata: Mapping[str, Any] | None
    ) -> tuple[Verdict, Stamp | None]:
        """Judge a read, see :class:`Judge`."""
        variant = self._variant(key, code)
        if variant is None:
            return (Verdict.FOREIGN if self._is_known(code) else Verdict.TORN), None
        if metadata is None:
            stale = self._register.is_stale_variant(key, snapshot, variant)
            return (Verdict.STALE if stale else Verdict.OK), None
        return self._judge_exactly(snapshot, variant, metadata.get(_STAMP))

    def _judge_exactly(self, snapshot: Snapshot, variant: int, found: object) -> tuple[Verdict, Stamp | None]:
        stamp = _stamp(found)
        if stamp is None or not self._register.knows(stamp) or stamp.variant != variant:
            return Verdict.TORN, stamp
        return (Verdict.STALE if self._register.is_stale(snapshot, stamp) else Verdict.OK), stamp

    def _variant(self, key: int, code: bytes) -> int | None:
        for variant, reference in enumerate(self._references[key]):
            if code == reference:
                return variant
        return None

    def _is_known(self, code: bytes) -> bool:
        """Returns whether these are the whole bytes of any key. Only a failure needs the digests, so it makes them."""
        if not self._known:
            self._known = {
                hashlib.blake2b(reference).digest()
                for key in range(len(self._references))
                for reference in self._references[key]
            }
        return hashlib.blake2b(code).digest() in self._known


def stamp_metadata(stamp: Stamp) -> dict[str, Any]:
    """Returns metadata that names the write of an entry."""
    return {_STAMP: list(stamp)}


def is_stamped(metadata: Mapping[str, Any], stamp: Stamp) -> bool:
    """Returns whether metadata names exactly this write."""
    return _stamp(metadata.get(_STAMP)) == stamp


def _stamp(found: object) -> Stamp | None:
    if not isinstance(found, (list, tuple)) or len(found) != len(Stamp._fields):
        return None
    if not all(isinstance(number, int) for number in found):
        return None
    return Stamp(*found)


class Proof(NamedTuple):
    """The contents of the head of a whole value."""

    token: bytes
    key: int
    stamp: Stamp


def make_value(token: bytes, key: int, stamp: Stamp, size_bytes: int) -> bytes:
    """Returns a value of ``size_bytes`` (at least :data:`SMALLEST_BYTES`) for this write."""
    size = max(size_bytes, SMALLEST_BYTES)
    head = _HEAD.pack(_MAGIC, token, key, stamp.writer, stamp.serial, stamp.started_us, size)
    body = _body(key * 1_000_003 + stamp.writer * 10_007 + stamp.serial * 101, size - SMALLEST_BYTES)
    return head + _digest(head, body) + body


def parse_value(value: bytes) -> Proof | None:
    """Returns the proof in ``value``; ``None`` if it is not a whole value of any write."""
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

# SPDX-License-Identifier: Apache-2.0
"""The last misses that programs can explain: a ring of 32 KB, which ``lockcache why --last`` reads.

Keeps invariant 7 (never take the job down) and the cost of a hit: a miss is noted in memory when what was missing is
stored, and written with the next report of the counters, under the same lock. Where there is no room, no right
or no lock, it is dropped.

Keeps the caution of invariant 1 (a hit is whole) for what others could write: a slot counts if its digest is right, so
what a death, a full disk or two hosts without common locks leave of one is a slot less; no more is read than a ring
has; and a time from the future is replaced first. Not promised: that every miss is here, or for how long.

A slot, little-endian: ``LCm`` and a version byte, the body's length (2 bytes), two zeros, the body's xxh3-64, the body:
JSON with the time in ns, the entry's name, its label, and the parts of its key.
"""

from __future__ import annotations

import json
import os
import re
import struct
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from lockcache.explain import Part, decode_label, decode_parts
from lockcache.filestream.disk import (
    UPDATE,
    Layout,
    is_alone,
    parse_json,
    read_small,
    refuse_symlink,
)

# The name of an entry.
_NAME: Final = re.compile(r"[0-9a-f]{64}")

#: Slots of the ring.
MOST_MISSES: Final = 25

# Parts take a kilobyte at most, time and name 120 bytes: the rest is the label's.
_SLOT_BYTES: Final = 1280
_HEAD: Final = struct.Struct("<4sHxxQ")
_MAGIC: Final = b"LCm\x01"
_DAY_NS: Final = 86400 * 10**9


class Miss(NamedTuple):
    """One program that was compiled because the cache lacked it."""

    time_ns: int
    #: The entry's.
    name: str
    label: str
    parts: Sequence[Part]
    #: Why the entry that was there was not served, as :func:`.entry.flaw_of` says, or ``renewed``.
    replaced: str = ""


def read_misses(layout: Layout) -> list[Miss]:
    """Returns the misses that are kept, the latest first; none where the ring cannot be read."""
    try:
        ring = read_small(layout, layout.misses, MOST_MISSES * _SLOT_BYTES)
    except OSError:
        return []
    return sorted((miss for miss in _slots(ring) if miss), key=lambda miss: -miss.time_ns)


def add_misses_locked(layout: Layout, misses: Sequence[Miss]) -> None:
    """Put misses into the slots of the oldest. Requires: the directory's lock. Raises :class:`OSError`."""
    refuse_symlink(layout.own)
    with layout.reach.open_or_create(layout.misses, UPDATE) as fd:
        if not is_alone(fd):
            layout.reach.unlink(layout.misses)  # only this name of it, and the next miss finds a new file
            return
        latest_ns = time.time_ns() + _DAY_NS
        times = [
            miss.time_ns if miss and miss.time_ns < latest_ns else 0
            for miss in _slots(os.pread(fd, MOST_MISSES * _SLOT_BYTES, 0))
        ]
        oldest_first = sorted(range(MOST_MISSES), key=lambda slot: times[slot])
        for slot, miss in zip(oldest_first, misses[-MOST_MISSES:], strict=False):
            os.pwrite(fd, _encode(miss), slot * _SLOT_BYTES)


def _slots(ring: bytes) -> list[Miss | None]:
    return [_decode(ring[slot * _SLOT_BYTES : (slot + 1) * _SLOT_BYTES]) for slot in range(MOST_MISSES)]


def _encode(miss: Miss) -> bytes:
    body = _body(miss)
    if len(body) > _SLOT_BYTES - _HEAD.size:
        body = _body(miss._replace(label=""))
    return (_HEAD.pack(_MAGIC, len(body), xxh3_64_intdigest(body)) + body).ljust(_SLOT_BYTES, b"\0")


def _body(miss: Miss) -> bytes:
    # An older lockcache knows four fields, and passes over what has more.
    return json.dumps(miss if miss.replaced else miss[:4], separators=(",", ":")).encode()


def _decode(blob: bytes) -> Miss | None:
    if len(blob) < _HEAD.size or not blob.startswith(_MAGIC):
        return None
    _, length, digest = _HEAD.unpack_from(blob)
    body = blob[_HEAD.size : _HEAD.size + length]
    if xxh3_64_intdigest(body) != digest:
        return None
    try:
        found = parse_json(b'{"miss":%b}' % body)["miss"]
        time_ns, name, label, parts = found[:4]
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            return None  # it becomes a path
        replaced = decode_label(found[4]) if len(found) > 4 else ""
        return Miss(int(time_ns), name, decode_label(label), decode_parts(parts), replaced)
    except (ValueError, TypeError, KeyError):
        return None

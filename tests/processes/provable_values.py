# SPDX-License-Identifier: Apache-2.0
"""Values that prove their key, their write and its writer, and that they are whole.

The values are those of the stress suite, for keys of any bytes.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from lockcache_stress.judge.reads import make_value, parse_value
from lockcache_stress.judge.register import Stamp


class Proof(NamedTuple):
    writer: int
    serial: int


def value_for(key: bytes, writer: int, serial: int, size_bytes: int = 1024) -> bytes:
    """Returns a value of about ``size_bytes``, which differs for each key, writer and serial."""
    return make_value(_token(key), 0, Stamp(writer, 0, serial, 0), size_bytes)


def prove(key: bytes, value: bytes) -> Proof:
    """Returns the proof in ``value``. Raises :class:`AssertionError` if it is torn, or not a value of ``key``."""
    found = parse_value(value)
    assert found is not None, f"torn: {len(value)} bytes"
    assert found.token == _token(key), "foreign: a value of another key"
    return Proof(found.stamp.writer, found.stamp.serial)


def _token(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=8).digest()

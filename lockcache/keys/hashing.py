# SPDX-License-Identifier: Apache-2.0
"""Unambiguous bytes for plain values, and the SHA-256 over them.

Keeps the rule that two different descriptions never hash the same bytes: every value carries its type and every string
its length, so that ``["ab", "c"]``, ``["a", "bc"]`` and ``[b"ab", "c"]`` are three different things. SHA-2 with
``usedforsecurity=False``: a name, not a signature, and FIPS systems have nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from enum import Enum
from struct import Struct
from typing import Any

#: Begins every key. Raise the number with any change in what a key is made of: old entries then simply miss.
_SCHEMA = b"lockcache key 2\n"

#: Type and length: of bytes in bytes, of a list in values.
_head = Struct("<cQ").pack


def digest(data: bytes) -> bytes:
    """Returns the SHA-256 of ``data``, 32 bytes."""
    return hashlib.sha256(data, usedforsecurity=False).digest()


def key(description: list[object]) -> bytes:
    """Returns the key for a description: 32 bytes."""
    return digest(_SCHEMA + encode(description))


def encode(value: object) -> bytes:
    """Returns bytes unique to a value: None, bool, int, float, str, bytes, or a list or tuple of these.

    A list and a tuple of the same values are the same, as they are to every compiler option; 1, 1.0 and True are three.
    TypeError for other types: their repr might hold an address, and a key that no other process makes is worse than an
    error.
    """
    pieces: list[bytes] = []
    _append([value], pieces.append)
    return b"".join(pieces)


def _append(values: Sequence[Any], put: Callable[[bytes], None]) -> None:
    # One flat loop that appends: half the time of a function that returns the bytes of each value.
    for value in values:
        kind = type(value)
        if kind is bytes:
            put(_head(b"y", len(value)))
            put(value)
        elif kind is str:
            text = value.encode()
            put(_head(b"s", len(text)))
            put(text)
        elif value is None:
            put(b"n")
        elif kind is list or kind is tuple:
            put(_head(b"l", len(value)))
            _append(value, put)
        elif kind is bool or kind is int or kind is float:
            text = repr(value).encode()
            put(_head(b"v", len(text)))
            put(text)
        elif isinstance(value, Enum):
            _append([value.value], put)
        elif isinstance(value, str):
            _append([str.__str__(value)], put)
        else:
            accepted = "None, bool, int, float, str, bytes, lists and tuples"
            raise TypeError(f"cannot put a {kind.__name__} into a cache key: accepted are {accepted}")

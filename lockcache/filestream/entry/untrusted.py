# SPDX-License-Identifier: Apache-2.0
"""Verification of an untrusted entry, from a bundle or a server: that a writer stored it under its name.

Keeps invariant 1 (a hit is whole): nothing else decides whether such bytes are served. A file of the directory is read
by :mod:`.reader`, which has more to look at: a record in two places, and entries without one.
"""

from __future__ import annotations

from lockcache.filestream.entry.codec import ORDINARY, is_signed, is_whole
from lockcache.filestream.entry.signing import KeyRing

__all__ = ["RefusedEntryError", "refuse_unless_whole"]


class RefusedEntryError(ValueError):
    """An entry that may be whole, but cannot be verified with the keys that are here."""


def refuse_unless_whole(name: str, payload: bytes | memoryview, blob: bytes, keys: KeyRing | None) -> None:
    """Raise :class:`ValueError` unless ``blob`` is the record of exactly this payload under exactly this name.

    Signed with one of ``keys``, where there are any: else :class:`RefusedEntryError`, as for a signed one without keys.
    """
    if keys is not None:
        if not keys.is_whole(blob, name, payload):
            if keys.knows(blob):
                raise ValueError("it is not what was signed")
            raise RefusedEntryError("it is not signed with one of the given keys")
    elif is_signed(blob):
        raise RefusedEntryError("it is signed, and there is no key here")
    elif blob[:4] != ORDINARY or not is_whole(blob, name, payload):
        raise ValueError("it is not what its digest says")

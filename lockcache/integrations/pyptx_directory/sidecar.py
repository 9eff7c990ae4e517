# SPDX-License-Identifier: Apache-2.0
"""The json file of a pyptx entry: what pyptx wants there, and a digest that binds all three files into one entry.

Keeps invariant 1 (a hit is whole): an entry with our digest is served only if key, metadata, PTX and cubin are those
that one writer put together. The digest is the last member of the object and covers every byte before it, so nothing in
the file is outside of it; pyptx passes over members that it does not know.

What pyptx wrote by itself has no digest. :func:`is_plausible` says of such files what can be said: see there. Not
promised: protection against somebody who may write to the directory (xxh3 is not a signature).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from xxhash import xxh3_128_digest, xxh3_128_hexdigest

from lockcache import metadata as _metadata

__all__ = ["File", "has_digest", "is_plausible", "is_whole", "normalized", "pack", "unpack"]

# Added to pyptx's members: metadata as lockcache encodes it, since JSON turns tuples into lists.
_OWN: Final = "lockcache"
_MARK: Final = b', "lockcache_digest": "'
_DIGEST_BYTES: Final = 32
_SUFFIX_BYTES: Final = len(_MARK) + _DIGEST_BYTES + len('"}')

# Length of the PTX, and of the cubin or -1 for none.
_LENGTHS: Final = struct.Struct("<qq")

# A 64-bit little-endian ELF file for CUDA (machine 190), as every cubin is.
_ELF_IDENT: Final = b"\x7fELF\x02\x01\x01"
_ELF_HEADER_BYTES: Final = 64
_ELF_CUDA: Final = 190


class File(NamedTuple):
    """One of the three files, as read."""

    content: bytes
    mtime_ns: int


def pack(name: str, key: Mapping[str, Any], metadata: Mapping[str, Any], ptx: bytes, cubin: bytes | None) -> bytes:
    """The json file of an entry.

    Raises :class:`TypeError` or :class:`ValueError` for metadata that neither JSON (with ``str`` for what it does not
    know, as in pyptx) nor :mod:`lockcache.metadata` can hold.
    """
    members = {"key": key, "metadata": metadata, _OWN: {"version": 1, "metadata": _encoded(metadata)}}
    body = json.dumps(members, default=str).encode()
    return body[:-1] + _MARK + _digest(name, body[:-1], ptx, cubin) + b'"}'


def has_digest(sidecar: bytes) -> bool:
    """Returns whether lockcache wrote this json file; if not, pyptx did."""
    return sidecar[-_SUFFIX_BYTES : -_SUFFIX_BYTES + len(_MARK)] == _MARK and sidecar.endswith(b'"}')


def is_whole(sidecar: bytes, name: str, ptx: bytes, cubin: bytes | None) -> bool:
    """Returns whether one writer stored these together under this name. Requires: :func:`has_digest`."""
    stated = sidecar[-_DIGEST_BYTES - 2 : -2]
    return stated == _digest(name, sidecar[:-_SUFFIX_BYTES], ptx, cubin)


def unpack(sidecar: bytes) -> tuple[str, dict[str, Any]]:
    """Key (normalized) and metadata. Raises :class:`ValueError` for what neither of us wrote."""
    try:
        members = json.loads(sidecar)
        own = members.get(_OWN, {})
        if own and not has_digest(sidecar):
            raise ValueError("the digest is lost")
        encoded = own.get("metadata")
        plain = members.get("metadata", {})
        metadata = plain if encoded is None else _metadata.decode(encoded.encode())
        key = normalized(members["key"])
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"no json file of pyptx: {error!r}") from error
    if not isinstance(metadata, dict):
        raise ValueError("no json file of pyptx: metadata is not an object")
    return key, metadata


def normalized(key: object) -> str:
    """A key's members as one text, equal for a key and for what JSON makes of it."""
    return json.dumps(json.loads(json.dumps(key, default=str)), sort_keys=True)


def is_plausible(sidecar: File, ptx: File, cubin: File | None) -> bool:
    """Returns whether files without a digest may be one entry.

    pyptx writes PTX, cubin, json, in this order and in place. So a json older than one of the others is that of an
    earlier entry, whose successor was not written to its end: no entry. (A copy that does not keep times, ``cp -r``,
    can look like that; ``cp -a`` keeps them.) A cubin of which the end is missing is not an entry either. What is not
    known: a PTX cut short before it was complete for the first time, and two writers within one tick of the clock.
    """
    parts = [part for part in (ptx, cubin) if part is not None]
    if any(not part.content or part.mtime_ns > sidecar.mtime_ns for part in parts):
        return False
    return cubin is None or not _is_cut_short(cubin.content)


def _is_cut_short(cubin: bytes) -> bool:
    """Returns whether an ELF file for CUDA ends before its tables of sections and segments do."""
    if len(cubin) < _ELF_HEADER_BYTES or not cubin.startswith(_ELF_IDENT):
        return False  # nothing that we can judge
    machine = int.from_bytes(cubin[18:20], "little")
    segments_at, sections_at = struct.unpack_from("<QQ", cubin, 32)
    segment_bytes, segments, section_bytes, sections = struct.unpack_from("<HHHH", cubin, 54)
    ends = segments_at + segment_bytes * segments, sections_at + section_bytes * sections
    return machine == _ELF_CUDA and len(cubin) < max(ends)


def _encoded(metadata: Mapping[str, Any]) -> str | None:
    try:
        return _metadata.encode(metadata).decode()
    except (TypeError, ValueError, RecursionError):
        return None  # objects that only JSON's str() can take: they come back as pyptx would give them


def _digest(name: str, body: bytes, ptx: bytes, cubin: bytes | None) -> bytes:
    lengths = _LENGTHS.pack(len(ptx), -1 if cubin is None else len(cubin))
    parts = [xxh3_128_digest(part) for part in (body, ptx, cubin or b"")]
    return xxh3_128_hexdigest(b"".join([name.encode(), lengths, *parts])).encode()

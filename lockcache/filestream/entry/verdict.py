# SPDX-License-Identifier: Apache-2.0
"""Verdict on an open entry, by all of its bytes: whole, without a record, or wrong in some way.

Keeps invariant 1 (a hit is whole) for :mod:`.repair.verify`, by the same digest as :mod:`.reader` and with other means:
a payload is digested in pieces, so that one of gigabytes takes a megabyte of memory and can be left half-way. Knows
nothing of names, locks and races: what it says is true of the file and of the records that it was given.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from typing import Final, Literal, Protocol

from xxhash import xxh3_128

from lockcache.filestream.entry.codec import (
    THIS_VERSION,
    as_ordinary,
    binds,
    has_whole_tail,
    is_record,
    is_understood,
    may_have,
    payload_bytes,
)

#: What an entry is found to be. By its record alone (:mod:`.describe`) it is ``whole``, unverified; ``none``,
#: without a record; ``damaged``; ``unreadable``; or ``newer``, of a version that is not known here. By all of its bytes
#: (:mod:`.repair.verify`) it is one of the constants.
EntryState = Literal["whole", "none", "damaged", "newer", "unverified", "corrupt", "unreadable", "passed over"]

#: Exactly what some writer stored under that name.
WHOLE: Final = "whole"
#: Without a record (cuda.core's own), or with one of a newer version: readable, and there is nothing to judge it by.
UNVERIFIED: Final = "unverified"
#: Not what any writer stored there. Never served.
CORRUPT: Final = "corrupt"
#: The disk or file server does not return its bytes. Not served while that lasts.
UNREADABLE: Final = "unreadable"
#: Not read: reading it would count as a use, or it was replaced each time.
PASSED_OVER: Final = "passed over"

#: What can be wrong with an entry: a word for names and programs, and a sentence for people.
WRONG: Final = {
    "digest": "payload, record and name are not what was stored together",
    "truncated": "the payload is shorter than what was stored",
    "grown": "the payload is longer than what was stored",
    "empty": "the payload is gone, as after a power cut",
    "record": "the record is damaged, or of something else",
    "tail": "the end of the record is missing",
    "foreign": "not a plain file",
}

# Long enough that the cost of a call is small against it (0.3 ms), short enough for a rate to be kept.
_CHUNK_BYTES: Final = 1 << 20


def needs_payload(records: list[bytes], size_bytes: int) -> bool:
    """Returns whether the payload has to be read: not if its length is wrong already. It may be a terabyte."""
    return not records or any(may_have(blob, size_bytes) for blob in records)


class Hasher(Protocol):
    """A hash that digests piece by piece."""

    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...


def digest_payload(fd: int, size_bytes: int, new: Callable[[], Hasher] = xxh3_128) -> Generator[int, None, bytes]:
    """Returns the payload's digest, by the checksum's hash or a ``new`` one. Yields the bytes that each step read.

    Raises :class:`OSError`: ESTALE for a file that was removed or cut meanwhile.
    """
    hasher, offset = new(), 0
    while offset < size_bytes:
        chunk = os.pread(fd, min(_CHUNK_BYTES, size_bytes - offset), offset)
        if not chunk:
            raise OSError(errno.ESTALE, "cut while it was read")
        hasher.update(chunk)
        offset += len(chunk)
        yield len(chunk)
        # An open file keeps its blocks on disk: an evicted one is given up.
        if offset < size_bytes and not os.fstat(fd).st_nlink:
            raise OSError(errno.ESTALE, "removed while it was read")
    return hasher.digest()


def judge_entry(records: list[bytes], name: str, size_bytes: int, payload_digest: bytes) -> str:
    """Returns a word of ``WRONG``; an empty one for an entry that is whole, or has no record to compare it with.

    ``payload_digest`` is not looked at where :func:`needs_payload` says no.
    """
    if not records:
        # Nobody stores an empty program; an empty file without a record is what a power cut leaves.
        return "" if size_bytes else "empty"
    # What stands in the head is settled by the version; only the digest needs an algorithm that is known here.
    known = [blob for blob in records if is_record(blob, THIS_VERSION)]
    if known and not any(may_have(blob, size_bytes) for blob in known):
        return _wrong_length(payload_bytes(known[0]), size_bytes)
    fitting = [blob for blob in known if is_understood(blob) and may_have(blob, size_bytes)]
    if not fitting:
        return "record"
    if any(binds(blob, name, payload_digest) for blob in fitting):
        return ""
    return "digest" if any(map(has_whole_tail, fitting)) else "tail"


def _wrong_length(stated_bytes: int, size_bytes: int) -> str:
    if not size_bytes:
        return "empty"
    return "truncated" if size_bytes < stated_bytes else "grown"


def is_of_another_version(records: list[bytes], name: str, payload_digest: bytes) -> bool:
    """Returns whether the records have an unknown version or algorithm, rather than a known one and damage."""
    unknown = [blob for blob in records if is_record(blob) and not is_understood(blob)]
    if not unknown or len(unknown) < len(records):
        return False
    # A flip in just these two bytes makes a known record look so; then it is whole with them put right.
    return not any(binds(each, name, payload_digest) for blob in unknown for each in as_ordinary(blob))

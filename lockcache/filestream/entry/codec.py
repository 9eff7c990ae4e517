# SPDX-License-Identifier: Apache-2.0
"""The record that travels with a payload, and the digest that binds it to payload and key.

Keeps invariant 1 (a hit is whole): a payload is served only if its record's digest, over the entry's name, the record
and the payload, is what the bytes in hand give. A torn, truncated, altered or misplaced payload, or one paired with
another entry's record, fails it. Not promised: protection against someone who may write to the directory (xxh3 is not a
signature).

The record's bytes, little-endian, are a fixed head of 44 bytes and a tail:

====== ===== ==================================================================
offset bytes meaning
====== ===== ==================================================================
0      2     magic ``LC``
2      1     record version, 1
3      1     digest algorithm (1: xxh3-128, 2: a signature); the top bit: the tail is in the record file
4      4     tail length
8      4     payload length, or 2**32-1 for that much and more
12     8     creation time, ns since the epoch
20     8     compile cost, ns; 0 for unknown
28     16    digest
44     ...   tail: encoded metadata (:mod:`lockcache.metadata`), absent when there is none
====== ===== ==================================================================

The head fits wherever there are extended attributes at all (small ext4 images allow 255 bytes) and, without a tail,
into ext4's inode. The payload's length stands in it so that a reader needs no fstat: it takes the attribute first,
then reads exactly that much (measured: 0.9 us of a 6 us hit).
"""

from __future__ import annotations

import errno
import logging
import struct
from typing import Final, NamedTuple, Protocol

from xxhash import xxh3_128_digest

from lockcache.metadata import join_fields
from lockcache.resource import Entry, join_metadata

_log = logging.getLogger("lockcache")

#: The extended attribute that holds a record.
XATTR: Final = "user.lockcache"
#: A second one, for people: what the entry is called and what its key was made of (:mod:`lockcache.explain`), as the
#: fields next to a record's metadata. Not in the record, which each hit reads: Python takes an attribute of more than
#: 128 bytes with two calls. Where records are files, it stands in the record's tail, of which a hit reads all anyhow.
#: Bound by no digest: it is shown and decides nothing.
NOTE_XATTR: Final = "user.lockcache.note"
LARGEST_NOTE_BYTES: Final = 4096
HEAD_BYTES: Final = 44
#: Longer than any compilation: the longest known are some hours of autotuning. A record that states more counts as
#: unknown.
LARGEST_COST_NS: Final = 24 * 3600 * 10**9
#: The longest record, head and tail, that is stored. A symbol mapping of a thousand templates is some 200 KB.
LARGEST_RECORD_BYTES: Final = 16 * 1024 * 1024
#: A payload of at least this length is stated as this; the reader asks fstat.
LONG_PAYLOAD: Final = 2**32 - 1
#: Flag in the algorithm byte: the tail is not in the attribute but in the record file.
TAIL_BESIDE: Final = 0x80

# The bytes that an attribute takes in an inode in addition to its value: on ext4, 16 and the name.
_SECOND_ATTRIBUTE_BYTES: Final = 64

# What a file system answers for an attribute that is too big for it (ext4 says ENOSPC), and for none at all.
_TOO_BIG: Final = (errno.ENOSPC, errno.E2BIG, errno.ERANGE)
_NO_XATTRS: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)

_PREFIX: Final = struct.Struct("<2sBBIIqq")
_pack = _PREFIX.pack
_MAGIC: Final = b"LC"
_VERSION: Final = 1
_XXH3_128: Final = 1
_SIGNATURE: Final = 2
#: How records of this version begin.
THIS_VERSION: Final = _MAGIC + bytes([_VERSION])
#: How a record begins that this version can verify and that is whole in the attribute.
ORDINARY: Final = _MAGIC + bytes([_VERSION, _XXH3_128])
#: The same of one with a signature (:mod:`.signing`), which takes a key to verify.
SIGNED: Final = _MAGIC + bytes([_VERSION, _SIGNATURE])


class Record(NamedTuple):
    """A record, taken apart."""

    payload_bytes: int
    created_ns: int
    cost_ns: int
    tail: bytes


def pack(name: str, payload: bytes, record: Record, *, beside: bool = False) -> bytes:
    """Returns head and tail for ``payload`` under ``name``; ``beside``: marked as having its tail in a file."""
    _, created_ns, cost_ns, tail = record
    algorithm = _XXH3_128 | (TAIL_BESIDE if beside else 0)
    length = min(len(payload), LONG_PAYLOAD)
    prefix = _pack(_MAGIC, _VERSION, algorithm, len(tail), length, created_ns, cost_ns)
    # Two short calls rather than one streaming hash: 0.3 us less for small payloads, and no copy of large ones. The
    # prefix holds the tail's length, so no two splits of the same bytes give one digest.
    return prefix + xxh3_128_digest(prefix + name.encode() + tail + xxh3_128_digest(payload)) + tail


def pack_with(algorithm: int, payload: bytes, record: Record, *, beside: bool = False) -> tuple[bytes, bytes]:
    """Returns the bytes of a record before its digest, and those after it."""
    _, created_ns, cost_ns, tail = record
    algorithm |= TAIL_BESIDE if beside else 0
    length = min(len(payload), LONG_PAYLOAD)
    return _pack(_MAGIC, _VERSION, algorithm, len(tail), length, created_ns, cost_ns), tail


def is_whole(blob: bytes, name: str, payload: bytes | memoryview) -> bool:
    """Returns whether ``blob`` (head and tail) is the record of exactly this payload under exactly this name."""
    return binds(blob, name, xxh3_128_digest(payload))


def binds(blob: bytes, name: str, payload_digest: bytes) -> bool:
    """Returns :func:`is_whole`, given the payload's digest."""
    return digest_of(blob) == xxh3_128_digest(bound_with(blob, name) + payload_digest)


def bound_with(blob: bytes, name: str) -> bytes:
    """Returns the bytes that a record's digest covers before the payload's digest."""
    return blob[:28] + name.encode() + blob[HEAD_BYTES:]


def is_record(blob: bytes, head: bytes = _MAGIC) -> bool:
    """Returns whether ``blob`` begins like a record of any version, or with another ``head``."""
    return len(blob) >= HEAD_BYTES and blob.startswith(head)


def is_known(blob: bytes) -> bool:
    """Returns whether this version knows the format that ``blob`` states, with a digest or a signature; unverified."""
    return is_record(blob, THIS_VERSION) and blob[3] & ~TAIL_BESIDE in (_XXH3_128, _SIGNATURE)


def is_understood(blob: bytes) -> bool:
    """Returns whether this version can verify ``blob``; what it cannot verify it does not serve."""
    return is_known(blob) and blob[3] & ~TAIL_BESIDE == _XXH3_128


def is_signed(blob: bytes) -> bool:
    """Returns whether a record has a signature, by any key."""
    return is_known(blob) and blob[3] & ~TAIL_BESIDE == _SIGNATURE


def as_ordinary(blob: bytes) -> list[bytes]:
    """Returns the records that ``blob`` may have been before its version or algorithm was damaged."""
    return [ORDINARY[:3] + bytes([_XXH3_128 | beside]) + blob[4:] for beside in (0, TAIL_BESIDE)]


def split_signature(blob: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Returns the bytes before a signature, its key's id, the rest of the signature, and the tail."""
    return blob[:28], blob[28:30], blob[30:44], blob[44:]


def digest_of(blob: bytes) -> bytes:
    """Returns the digest or signature in a record. Requires: :func:`is_known`."""
    return blob[28:44]


def _tail_bytes(blob: bytes) -> int:
    return int.from_bytes(blob[4:8], "little")


def has_whole_tail(blob: bytes) -> bool:
    """Returns whether a record has as long a tail as its head states."""
    return len(blob) == HEAD_BYTES + _tail_bytes(blob)


def is_tail_beside(head: bytes) -> bool:
    """Returns whether an attribute is only a head, whose tail is in the record file."""
    return len(head) == HEAD_BYTES and bool(head[3] & TAIL_BESIDE)


def with_tails(head: bytes, tails: bytes) -> list[bytes]:
    """Returns a head with each candidate for its tail: the first in a file of tails, and the last, an older one."""
    length = _tail_bytes(head)
    return [head + tails[:length], head + tails[max(0, len(tails) - length) :]]


def payload_bytes(blob: bytes) -> int:
    """Returns the payload's length as stated in the head. Requires: :func:`is_understood`."""
    return int.from_bytes(blob[8:12], "little")


def may_have(blob: bytes, size_bytes: int) -> bool:
    """Returns whether a record may be that of a payload of this length."""
    return is_record(blob, b"") and payload_bytes(blob) == min(size_bytes, LONG_PAYLOAD)


#: The payload's length as stated, and the cost, of a head. Requires: :func:`is_known`.
length_and_cost = struct.Struct("<8xI8xq").unpack_from


def stated_cost(head: bytes, stored_bytes: int, *, has_file: bool) -> int:
    """Returns the cost that the head of a record states, 0 for unknown, and for what is visibly not an entry's record.

    ``stored_bytes``: of the payload; with a record file of both (``has_file``), and then the payload's own length is
    not known.
    """
    if len(head) < HEAD_BYTES or not head.startswith(THIS_VERSION):
        return 0
    length, cost_ns = length_and_cost(head)
    is_known = head[3] & ~TAIL_BESIDE in (_XXH3_128, _SIGNATURE) and 0 < cost_ns <= LARGEST_COST_NS
    is_its = length == stored_bytes or (length < stored_bytes and (has_file or length == LONG_PAYLOAD))
    return cost_ns if is_known and is_its else 0


def cost_of(blob: bytes) -> int:
    """Returns the cost that a record states, 0 for unknown or an empty record. Requires: :func:`is_known`, or empty."""
    cost_ns: int = length_and_cost(blob)[1] if blob else 0
    return cost_ns if 0 < cost_ns <= LARGEST_COST_NS else 0


def split_records(file: bytes) -> list[bytes]:
    """Returns the records in a record file, newest first: one, or two during a publish."""
    records: list[bytes] = []
    start = 0
    while start < len(file) or not records:
        end = start + HEAD_BYTES + _tail_bytes(file[start : start + 8])
        records.append(file[start:end])
        start = end
    return records


def unpack(blob: bytes) -> Record:
    """Take a verified record apart."""
    _, _, _, _, size, created_ns, cost_ns = _PREFIX.unpack_from(blob)
    return Record(size, created_ns, cost_ns, blob[HEAD_BYTES:])


class AttributeRefusedError(OSError):
    """The file system did not take a record as an extended attribute."""

    def __init__(self, error: OSError, attribute_bytes: int) -> None:
        super().__init__(error.errno, error.strerror, XATTR)
        self.attribute_bytes = attribute_bytes


class Pack(Protocol):
    """The function that makes a record of a payload: :func:`pack`, or one that signs it."""

    def __call__(self, name: str, payload: bytes, record: Record, *, beside: bool = False) -> bytes: ...


class Packed(NamedTuple):
    """A record as it is stored. Each part may be empty."""

    attribute: bytes
    #: For people, in an attribute of its own: see :data:`NOTE_XATTR`.
    note: bytes
    file: bytes
    #: The most that the attributes take in an inode.
    inode_bytes: int


class RecordPlacement:
    """The place for records of this directory, as learned from what its file system accepted. The first place is tried.

    Everything in the attribute; or only the head, with the tail in a record file, where attributes are small; or all of
    it in a record file, where there are none (or where the user asked for files).
    """

    __slots__ = ("_attribute_bytes", "fits_bytes")

    # 4,000 is the most that fits next to a name on ext4 with 4 KiB blocks; xfs, btrfs and tmpfs take more.
    _LARGEST_ATTRIBUTE_BYTES: Final = 3900

    def __init__(self, *, use_files: bool) -> None:
        self._attribute_bytes = 0 if use_files else self._LARGEST_ATTRIBUTE_BYTES
        #: The largest attribute that was seen to fit into the inode.
        self.fits_bytes = 0

    def learn_fit(self, attribute: bytes, note: bytes) -> None:
        """Remember that attributes of this length fitted into the inode."""
        self.fits_bytes = max(self.fits_bytes, len(attribute) + len(note))

    def pack(self, make: Pack, name: str, payload: bytes, record: Record, note: bytes) -> Packed:
        """Make the record of ``payload``. Returns what of it goes into the attribute, and what into the record file.

        Raises :class:`OSError` (EFBIG) for one that is longer than readers accept.
        """
        most = self._attribute_bytes
        uses_files = most < HEAD_BYTES  # there are no attributes here, or none that are large enough
        if uses_files and note:
            record, note = record._replace(tail=join_fields(note, record.tail)), b""
        is_beside = not uses_files and most < HEAD_BYTES + len(record.tail)
        blob = make(name, payload, record, beside=is_beside)
        if len(blob) > LARGEST_RECORD_BYTES:
            what = f"a record of {len(blob)} bytes, most of it metadata, is longer than {LARGEST_RECORD_BYTES}"
            raise OSError(errno.EFBIG, what)
        if uses_files:
            return Packed(b"", b"", blob, 0)
        in_attribute = HEAD_BYTES if is_beside else len(blob)
        inode_bytes = in_attribute + (len(note) + _SECOND_ATTRIBUTE_BYTES if note else 0)
        return Packed(blob[:in_attribute], note, blob[in_attribute:], inode_bytes)

    def learn_from(self, error: AttributeRefusedError) -> str | None:
        """Put records elsewhere from now on; a name for what was learned, or ``None`` if that was not a reason to."""
        if error.errno in _NO_XATTRS:
            self._attribute_bytes = 0
            return "no attributes here"
        if error.errno in _TOO_BIG and error.attribute_bytes > HEAD_BYTES:
            self._attribute_bytes = error.attribute_bytes - 1
            return f"no attribute of {error.attribute_bytes} bytes here"
        return None


def as_entry(path: str, payload: bytes, blob: bytes) -> Entry | None:
    """Returns what callers get for a verified payload and its record, of which there may be none.

    ``None`` for one that a version stored which knows more: half of an entry is none (invariant 7, never take the job
    down).
    """
    if not blob:
        return Entry(payload)  # written by cuda.core's own cache
    record = unpack(blob)
    try:
        return Entry(payload, join_metadata(record.tail, record.cost_ns))
    except ValueError as error:
        _log.warning("%s: the metadata of an entry cannot be read here: %s", path, error)
        return None

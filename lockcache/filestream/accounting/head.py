# SPDX-License-Identifier: Apache-2.0
"""The head of the state page: its codec, which alone knows the offsets.

Keeps the caution of invariant 1 (a hit is whole) for what others could write: a head counts if its digest is right and
each number is one that lockcache writes. A head that does not is damage, and the directory is counted again.

Block 0 of the page, little-endian, in sectors of 512 bytes, of which a power cut leaves one old or new:

- 0: magic, format version, inode of the folder, the sizes that count (:mod:`.disk.space`), flags, cap, priority; at its
  end the digest of the sector
- 1 to 4: the seed: digest, length, JSON; zeros for none
- 5: the counters of all programs (:mod:`.counters`), with a digest of their own
- 6 and 7: the ages by which eviction by value compares entries (:mod:`.ages`)
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
from dataclasses import asdict
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from lockcache.filestream.disk import FORMAT_MAGIC, FORMAT_VERSION, SPACES, Space, is_sane, parse_json
from lockcache.filestream.policy import Policy, Priority, Seed

#: What states who may do what: it changes with the policy alone.
HEAD_BYTES: Final = 2560
#: The sector of the counters, which this module does not touch.
COUNTERS_AT: Final = HEAD_BYTES
COUNTERS_END: Final = HEAD_BYTES + 512
#: The sectors of the ages, which this module does not touch either.
AGES_AT: Final = COUNTERS_END
AGES_END: Final = AGES_AT + 1024
#: Magic, version and folder.
BEGINNING_BYTES: Final = 16
#: Added to the folder of a head whose page is being counted: nobody accounts on it yet.
NOT_COUNTED: Final = 1 << 63

_SECTOR_BYTES: Final = 512
# Magic, version, folder; block and inode bytes, shows_blocks; flags, priority, cap, of which 0 is none.
_HEAD: Final = struct.Struct("<7sBQIHBBBq")
_DIGEST: Final = struct.Struct("<Q")
_SEED: Final = struct.Struct("<QH")
_BEGINNING: Final = FORMAT_MAGIC + bytes([FORMAT_VERSION])
_BY_OPERATOR, _STATES_PRIORITY, _IS_DEFAULT = 1, 2, 4
# 0 was written where lru was the default: it counts if somebody chose it. 1 was ``cost``.
_UNSTATED_OR_LRU: Final = 0
_PRIORITY_CODES: Final[dict[Priority, int]] = {"value": 1, "lru": 2}
_PRIORITIES: Final = {code: priority for priority, code in _PRIORITY_CODES.items()}


class Head(NamedTuple):
    """The facts that a directory states of itself."""

    #: The inode of the ``lockcache/`` folder that the page was made in: elsewhere it is a copy, and not believed. Of a
    #: page that is being counted with :data:`NOT_COUNTED`.
    folder: int
    #: The sizes that files and folders count for.
    space: Space
    policy: Policy


def encode_head(head: Head) -> bytes:
    """Returns the first bytes of a page. Raises :class:`OSError` where there is no room for the path of a seed."""
    policy, space = head.policy, head.space
    flags = (
        _BY_OPERATOR * policy.by_operator + _STATES_PRIORITY * policy.states_priority + _IS_DEFAULT * policy.is_default
    )
    rules = flags, _PRIORITY_CODES[policy.priority], policy.max_size_bytes or 0
    fields = _HEAD.pack(FORMAT_MAGIC, FORMAT_VERSION, head.folder, *space, *rules)
    sector = fields.ljust(_SECTOR_BYTES - _DIGEST.size, b"\0")
    return sector + _DIGEST.pack(xxh3_64_intdigest(sector)) + _encode_seed(policy.seed)


def decode_head(page: bytes) -> Head | None:
    """Returns the inverse of :func:`encode_head`; ``None`` for a page of another format, or a damaged one."""
    if len(page) < HEAD_BYTES or not page.startswith(_BEGINNING):
        return None
    sector = page[: _SECTOR_BYTES - _DIGEST.size]
    if _DIGEST.unpack_from(page, len(sector))[0] != xxh3_64_intdigest(sector):
        return None
    _, _, folder, block, inode, shows, flags, priority, cap = _HEAD.unpack_from(sector)
    space = SPACES[bool(shows)](block, inode, bool(shows))
    if not is_sane(space) or priority not in (_UNSTATED_OR_LRU, *_PRIORITIES) or cap < 0:
        return None
    policy = Policy(
        cap or None,
        bool(flags & _BY_OPERATOR),
        _PRIORITIES.get(priority, "lru" if flags & _STATES_PRIORITY else Policy.priority),
        bool(flags & _IS_DEFAULT),
        states_priority=bool(flags & _STATES_PRIORITY),
        seed=None
        if page.startswith(bytes(_SEED.size), _SECTOR_BYTES)
        else _decode_seed(page[_SECTOR_BYTES:HEAD_BYTES]),
    )
    return Head(folder, space, policy)


def _encode_seed(seed: Seed | None) -> bytes:
    text = b"" if seed is None else json.dumps(asdict(seed)).encode()
    most = HEAD_BYTES - _SECTOR_BYTES
    if seed is None:
        return bytes(most)
    if len(text) > most - _SEED.size:
        raise OSError(errno.ENAMETOOLONG, "the state has no room for the path of this seed", seed.path)
    return (_SEED.pack(xxh3_64_intdigest(text), len(text)) + text).ljust(most, b"\0")


def _decode_seed(blob: bytes) -> Seed | None:
    digest, length = _SEED.unpack_from(blob)
    text = blob[_SEED.size : _SEED.size + length]
    if not length or xxh3_64_intdigest(text) != digest:
        return None
    with contextlib.suppress(TypeError, ValueError):
        seed = Seed(**parse_json(text))
        if [type(value) for value in vars(seed).values()] == [str, int, str, bool, bool]:
            os.fsencode(seed.path)  # half of a character pair, which no path has
            if seed.path.startswith("/") and "\0" not in seed.path and 0 <= seed.bytes < 2**63:
                return seed
    return None

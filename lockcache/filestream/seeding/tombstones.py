"""Tombstones of a directory's earlier seeds: names that no later copy may serve, and files that ``clear`` took away.

Keeps invariant 2 (last write wins) from one seed to the next. Marks are in the table of the copy, and are lost with it;
so the names that it did not serve, and that its successor lacks, are noted in a file of their own, which is replaced
whole, before the copy is removed. That file is read and written when a copy is made or removed, and by no lookup, put
or removal.

Keeps invariant 7 (never take the job down): the file is read up to a bound. If it cannot be read, or would need more
names than the bound, no seed is attached any more, until an operator attaches one: rather no value than an old one.

====== ============ ==========================================================================
part   bytes        meaning
====== ============ ==========================================================================
head   32           magic ``LCSEEDPT``, cleared files (u32), names (u32; all ones: too many),
                    xxh3-128 of what follows
files  32 each      sha256 of path and version of a file that was cleared, the latest one last
names  32 each      as in a bundle's table
====== ============ ==========================================================================
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from xxhash import xxh3_128_digest

from lockcache.errors import ArchiveError
from lockcache.filestream.disk import READ, Layout, open_below, replace_file, space_of, unlink_below
from lockcache.filestream.policy import Seed, most_seed_bytes

__all__ = [
    "Tombstones",
    "forget_tombstones",
    "largest_bundle_bytes",
    "read_tombstones",
    "taken_by_tombstones",
    "write_tombstones",
]

_MAGIC: Final = b"LCSEEDPT"
_HEAD: Final = struct.Struct("<8sII16s")
_NAME_BYTES: Final = 32
_MOST_CLEARED: Final = 16
_MOST_NAMES: Final = 1 << 15
# What opening, or reading, says of something else in its place.
_NO_FILE: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO)
_TOO_MANY: Final = 2**32 - 1
_LARGEST_BYTES: Final = _HEAD.size + (_MOST_CLEARED + _MOST_NAMES) * _NAME_BYTES


class Tombstones(NamedTuple):
    """The remains of a directory's earlier seeds."""

    names: frozenset[str] = frozenset()
    cleared: tuple[bytes, ...] = ()

    def with_names(self, names: Iterable[str]) -> Tombstones:
        """Returns these tombstones with more names that are not served."""
        return self._replace(names=self.names.union(names))

    def with_cleared(self, seed: Seed) -> Tombstones:
        """Returns these tombstones with one more file that was cleared; keeps the latest ones."""
        others = self.without_cleared(seed).cleared
        return self._replace(cleared=(*others, _digest_of(seed))[-_MOST_CLEARED:])

    def without_cleared(self, seed: Seed) -> Tombstones:
        """Returns these tombstones without a cleared file, which is attached again."""
        return self._replace(cleared=tuple(each for each in self.cleared if each != _digest_of(seed)))

    def has_cleared(self, seed: Seed) -> bool:
        """Returns whether the directory was cleared under this very file, which is the same since."""
        return _digest_of(seed) in self.cleared


def read_tombstones(layout: Layout) -> Tombstones:
    """Returns what the file says; none where there is none.

    Raises :class:`OSError`, and :class:`ArchiveError` for a file that says less than what it should.
    """
    try:
        with open_below(layout, layout.seed_past, READ) as fd:
            size_bytes = os.fstat(fd).st_size
            content = os.read(fd, _LARGEST_BYTES) if size_bytes <= _LARGEST_BYTES else b""
    except FileNotFoundError:
        return Tombstones()
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        content = b""
    what = f"which entries of earlier seeds are older than what was stored is not known any more ({layout.seed_past})"
    refusal = ArchiveError(f"{what}; for a seed run: lockcache policy set --seed none, then --seed FILE")
    if len(content) < _HEAD.size:
        raise refusal
    magic, cleared, names, digest = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if magic != _MAGIC or digest != xxh3_128_digest(body) or len(body) != (cleared + names) * _NAME_BYTES:
        raise refusal
    parts = [body[at : at + _NAME_BYTES] for at in range(0, len(body), _NAME_BYTES)]
    return Tombstones(frozenset(part.hex() for part in parts[cleared:]), tuple(parts[:cleared]))


def write_tombstones(layout: Layout, tombstones: Tombstones) -> None:
    """Write the tombstones into their file. Raises :class:`OSError`; then the file is unchanged."""
    is_full = len(tombstones.names) > _MOST_NAMES
    parts = () if is_full else (*tombstones.cleared, *map(bytes.fromhex, sorted(tombstones.names)))
    body = b"".join(parts)
    names = _TOO_MANY if is_full else len(tombstones.names)
    head = _HEAD.pack(_MAGIC, len(tombstones.cleared), names, xxh3_128_digest(body))
    replace_file(layout, layout.seed_past, head + body)


def forget_tombstones(layout: Layout) -> None:
    """Remove the tombstones. Raises :class:`OSError`."""
    with contextlib.suppress(FileNotFoundError):
        unlink_below(layout, layout.seed_past)


def taken_by_tombstones(layout: Layout, entries: int = 0) -> int:
    """Returns the bytes of the file, and of what a copy of so many entries may add to it when it goes."""
    try:
        size_bytes = os.stat(layout.seed_past, follow_symlinks=False).st_size
    except OSError:
        size_bytes = 0
    if not entries:
        return size_bytes
    # And one file that is cleared.
    return min(_LARGEST_BYTES, max(size_bytes, _HEAD.size) + (entries + 1) * _NAME_BYTES)


def largest_bundle_bytes(layout: Layout, cap: int) -> int:
    """Returns how long a bundle may be at least, whatever is in it, for a directory with this cap to be seeded with."""
    most = most_seed_bytes(cap)
    # A copy leaves 32 bytes of each entry, which takes 64 of the file and twice its slot in the table.
    left = min(_LARGEST_BYTES, taken_by_tombstones(layout) + _HEAD.size + _NAME_BYTES + most // 5)
    space = space_of(layout)
    return max(0, space.largest_file_bytes(most - space.of_bytes(left)))


def _digest_of(seed: Seed) -> bytes:
    return hashlib.sha256(f"{seed.path}\0{seed.version}".encode("utf-8", "surrogateescape")).digest()

"""Reading a bundle: a verified entry by its name, out of a file that anybody may have made.

Keeps invariant 1 (a hit is whole): an entry is served only if its record's digest, or its signature where there are
keys, is what name and bytes in hand give. Keeps invariant 7 (never take the job down): whatever stands in the file, a
read is a hit or a miss, and takes no more memory than the file has bytes.

On a local file system the file is mapped. On a network file system it is read: there a page of a file that another
host replaced is a SIGBUS, not an error. A local file that is cut while it is mapped is noticed by its size, a
moment before each read; so replace a bundle by rename, as lockcache does, and never write into one.
"""

from __future__ import annotations

import errno
import mmap
import os
import shlex
import stat
from typing import Final

from xxhash import xxh3_128_digest as _xxh3_128

from lockcache.errors import ArchiveError, UnsafeCacheDirError
from lockcache.filestream.bundle.format import (
    END_BYTES,
    MOST_PROBES,
    SLOT,
    START_BYTES,
    Place,
    is_whole,
    read_end,
)
from lockcache.filestream.disk import is_network, opened
from lockcache.filestream.entry import (
    HEAD_BYTES,
    LARGEST_RECORD_BYTES,
    ORDINARY,
    KeyRing,
    is_signed,
    is_whole as is_whole_entry,
)

__all__ = ["BundleFile", "RefusedEntryError"]

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

_SLOT_BYTES: Final = SLOT.size
_EMPTY: Final = bytes(SLOT.size)

# Looked up once, for the hit path.
_lseek, _from_bytes, _unpack = os.lseek, int.from_bytes, SLOT.unpack

# Read at once where the file is not mapped.
_TABLE_SLOTS: Final = 4096


class RefusedEntryError(ValueError):
    """An entry that may be whole, and cannot be verified with the keys that are here."""


class BundleFile:
    """An open bundle. Descriptor and mapping live as long as the object, or until :meth:`close`."""

    def __init__(self, path: str, keys: KeyRing | None = None) -> None:
        """Raises :class:`OSError`; :class:`UnsafeCacheDirError` for a file that others could have changed.

        Signed entries need no such file: with ``keys`` it may be anybody's. What is damaged is in :attr:`damage`, and
        then the bundle has no entries.
        """
        self.path = path
        self._keys = keys
        self._file = opened(path, _READ)
        self._fd = self._file.number
        self._map: mmap.mmap | None = None
        #: Why this holds no entries, in words; empty for a bundle that is in order.
        self.damage = ""
        self._table = self._slots = self.entries = 0
        try:
            status = os.fstat(self._fd)
            _refuse_unsafe(path, status, is_signed=keys is not None)
            self.size_bytes = status.st_size
            self._open_table()
        except BaseException:
            self.close()
            raise

    def load(self, name: bytes) -> tuple[bytes, bytes] | None:
        """Payload and record of the entry with this name (the sha256 of its key); ``None`` if there is none.

        Raises :class:`OSError`, and :class:`ValueError` for an entry that is damaged or not signed with the keys.
        """
        place = self.find(name)
        if place is None:
            return None
        # Copied before it is verified: what is served is what was verified, whatever becomes of the file.
        start, middle, end = self._bounds(place)
        record_bytes, map_ = middle - start, self._map
        if map_ is None:
            read = _read_all(self._fd, end - start, start)
            blob, payload = read[:record_bytes], read[record_bytes:]
        else:
            blob, payload = map_[start:middle], map_[middle:end]
            # Verified, written out: two calls are 0.5 us of a hit of 4.
            if self._keys is None and blob[:4] == ORDINARY:
                bound = blob[:28] + name.hex().encode()
                if record_bytes > HEAD_BYTES:
                    bound += blob[HEAD_BYTES:]
                if blob[28:HEAD_BYTES] == _xxh3_128(bound + _xxh3_128(payload)):
                    return payload, blob
        self._verify(name, payload, blob)
        return payload, blob

    def view(self, name: bytes) -> memoryview | None:
        """As :meth:`load`, the payload alone, and as it stands in the file where that is mapped."""
        map_ = self._map
        if map_ is None:
            loaded = self.load(name)
            return None if loaded is None else memoryview(loaded[0])
        place = self.find(name)
        if place is None:
            return None
        start, middle, end = self._bounds(place)
        payload = memoryview(map_)[middle:end]
        self._verify(name, payload, map_[start:middle])
        return payload

    def _bounds(self, place: tuple[bytes, int, int, int]) -> tuple[int, int, int]:
        """Where its record begins, where its payload does, and where that ends."""
        _, start, payload_bytes, record_bytes = place
        middle = start + record_bytes
        end = middle + payload_bytes
        if start < START_BYTES or not HEAD_BYTES <= record_bytes <= LARGEST_RECORD_BYTES or end > self._table:
            raise ValueError("its place is not in the file")
        return start, middle, end

    def _refuse_cut(self) -> None:
        # Not fstat, of which Python makes an object of twenty fields: 2 us of a hit of 5.
        if _lseek(self._fd, 0, os.SEEK_END) < self.size_bytes:
            raise OSError(f"{self.path} was cut off while in use; replace a bundle by renaming another one to it")

    def _verify(self, name: bytes, payload: bytes | memoryview, blob: bytes) -> None:
        if self._keys is not None:
            if not self._keys.is_whole(blob, name.hex(), payload):
                if self._keys.knows(blob):
                    raise ValueError("it is not what was signed")
                raise RefusedEntryError("it is not signed with one of the given keys")
        elif is_signed(blob):
            raise RefusedEntryError("it is signed, and there is no key here")
        elif blob[:4] != ORDINARY or not is_whole_entry(blob, name.hex(), payload):
            raise ValueError("it is not what its digest says")

    def find(self, name: bytes) -> tuple[bytes, int, int, int] | None:
        """Name, offset, bytes of payload and of record of this entry, as far as the file is to be believed."""
        slots, map_ = self._slots, self._map
        if not slots:
            return None
        if map_ is not None:
            self._refuse_cut()
        first = _from_bytes(name[:8], "little")
        for slot in range(first, first + MOST_PROBES):
            offset = self._table + slot % slots * _SLOT_BYTES
            found = self._read_slot(offset) if map_ is None else map_[offset : offset + _SLOT_BYTES]
            if len(found) < _SLOT_BYTES or found == _EMPTY:
                return None
            if found[:32] == name:
                return _unpack(found)
        return None

    def places(self) -> list[Place]:
        """Where each entry stands, by name. Raises :class:`OSError`, and :class:`ArchiveError` where they overlap.

        A writer's never do; read one after the other, they would be more than the file has bytes.
        """
        places = []
        for first in range(0, self._slots, _TABLE_SLOTS):
            count = min(_TABLE_SLOTS, self._slots - first)
            slots = SLOT.iter_unpack(self._read(self._table + first * SLOT.size, count * SLOT.size))
            places += [Place._make(fields) for fields in slots if fields[1]]
        if sum(place.taken_bytes for place in places) > self._table:
            raise ArchiveError(f"{self.path}: it is damaged: its entries overlap")
        return sorted(places)

    def close(self) -> None:
        """Close the file. A view of its bytes that somebody holds stays what it is."""
        self._map = None  # not close(): it refuses while there are views, and is done when the last one goes
        self._slots, self._fd = 0, -1
        self._file.close()

    def _open_table(self) -> None:
        start = os.pread(self._fd, START_BYTES, 0)
        end = os.pread(self._fd, END_BYTES, max(0, self.size_bytes - END_BYTES))
        try:
            table = read_end(start, end, self.size_bytes)
        except ValueError as error:
            self.damage = str(error)
            return
        if not is_network(self.path):
            self._map = mmap.mmap(self._fd, self.size_bytes, access=mmap.ACCESS_READ)
        try:
            if not is_whole(start, self._read(table.offset, table.slots * SLOT.size), end):
                self.damage = "it is damaged: its table is not what its digest says"
                return
        except MemoryError:
            self.damage = f"its table of {table.slots} slots does not fit into memory"
            return
        self._table, self._slots, self.entries = table

    def _read(self, offset: int, size_bytes: int) -> memoryview:
        """Bytes of the file, fewer if it ends before. Raises :class:`OSError`."""
        map_ = self._map
        if map_ is None:
            return memoryview(_read_all(self._fd, size_bytes, offset))
        self._refuse_cut()
        return memoryview(map_)[offset : offset + size_bytes]

    def _read_slot(self, offset: int) -> bytes:
        return os.pread(self._fd, _SLOT_BYTES, offset)


def _read_all(fd: int, size_bytes: int, offset: int) -> bytes:
    """Bytes of a file, however few a server gives at once."""
    read = os.pread(fd, size_bytes, offset)
    if len(read) == size_bytes or not read:
        return read
    parts = [read]
    while (left := size_bytes - sum(map(len, parts))) > 0:
        read = os.pread(fd, left, offset + size_bytes - left)
        if not read:
            break
        parts.append(read)
    return b"".join(parts)


def _refuse_unsafe(path: str, status: os.stat_result, *, is_signed: bool) -> None:
    """Refuse what is not a file, and, unless its entries are signed, one that somebody else could have changed."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file, so not a bundle", path)
    if is_signed:
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise UnsafeCacheDirError(
            f"{path} belongs to uid {status.st_uid}, not to you or root, who could put programs into it. Copy it to a "
            "file of your own if you trust its owner, or sign its entries",
            path,
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        what = f"{path} (mode {mode:04o}) could be changed by others. Run: chmod go-w {shlex.quote(path)}"
        raise UnsafeCacheDirError(what, path)

# SPDX-License-Identifier: Apache-2.0
"""Reading a bundle: returns verified entries by their names, from a file that anyone may have made.

Keeps invariant 1 (a hit is whole): an entry is served only if its record's digest (with keys, its signature) fits its
name and bytes. Keeps invariant 7 (never take the job down): whatever stands in the file, a read is a hit or a miss, and
takes no more memory than the file is long.

The file is read by pread and never mapped: access to a mapped page of a file that somebody cut, or that another host
replaced, is a SIGBUS and the end of the program, and no check in front of it can hold. What is read from a file that is
being written into is a miss; replace a bundle by rename, as lockcache does.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from typing import Final

from xxhash import xxh3_128_digest as _xxh3_128

from lockcache.errors import ArchiveError, UnsafeCacheDirError
from lockcache.filestream.bundle_format import (
    END_BYTES,
    HIDDEN_AT,
    MOST_PROBES,
    SLOT,
    START_BYTES,
    Place,
    Table,
    begins,
    is_whole,
    read_end,
)
from lockcache.filestream.disk import KeptDescriptor, is_hole, opened
from lockcache.filestream.entry import (
    HEAD_BYTES,
    LARGEST_RECORD_BYTES,
    KeyRing,
    RefusedEntryError,
    bound_with,
    digest_of,
    refuse_unless_whole,
)

__all__ = ["BundleFile", "RefusedEntryError", "is_bundle", "refuse_unsafe"]

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

_SLOT_BYTES: Final = SLOT.size
_EMPTY: Final = bytes(SLOT.size)

# Entries that are remembered as read, 5 MB at most.
_MOST_KNOWN: Final = 4096
_KNOWN_RECORD_BYTES: Final = 512

# Bytes of a table that are read at once.
_TABLE_SLOTS: Final = 4096

# Looked up once, for the hit path.
_pread = os.pread


class BundleFile:
    """An open bundle. The descriptor lives as long as the object, or until :meth:`close`."""

    # Whether entries are marked in the file while it is in use, so that they are not served.
    _has_marks = False

    def __init__(self, path: str, keys: KeyRing | None = None) -> None:
        """Raises :class:`OSError`; :class:`UnsafeCacheDirError` for a file that others could have changed.

        Signed entries need no such file: with ``keys`` it may be anybody's. What is damaged is in :attr:`damage`, and
        then the bundle has no entries.
        """
        self.path = path
        self._keys = keys
        self._file = self._open()
        self._fd = self._file.number
        # Entries that were whole, by name: the slot, where the payload begins, its length, and of the record the
        # digested bytes, the digest, and all of it. Decoded once; compared with the payload each time.
        self._known: dict[bytes, tuple[int, int, int, bytes, bytes, bytes]] = {}
        # The flag of an entry that is not served.
        self._met_flag = 0
        #: Why this holds no entries, in words; empty for a bundle that is in order.
        self.damage = ""
        self._table = self._slots = self.entries = 0
        try:
            status = os.fstat(self._fd)
            self._file.is_own(status)
            self._refuse(status)
            self.size_bytes = status.st_size
            if is_hole(status):
                self.damage = "it is damaged: most of it is a hole"
            else:
                self._open_table()
        except BaseException:
            self.close()
            raise

    def _open(self) -> KeptDescriptor:
        file = KeptDescriptor()
        file.open(self.path, _READ)
        return file

    def _refuse(self, status: os.stat_result) -> None:
        refuse_unsafe(self.path, status, is_signed=self._keys is not None)

    def _is_whole(self, start: bytes, table: Table, end: bytes) -> bool:
        return is_whole(start, self._slots_of(table), end)

    def load(self, name: bytes) -> tuple[bytes, bytes] | None:
        """Returns payload and record of the entry with this name (the sha256 of its key); ``None`` if there is none.

        Raises :class:`OSError`, and :class:`ValueError` for an entry that is damaged or not signed with the keys.
        """
        known = self._known.get(name)
        if known is not None:
            at, middle, size_bytes, bound, digest, blob = known
            payload = _pread(self._fd, size_bytes, middle)
            if _xxh3_128(bound + _xxh3_128(payload)) == digest and not (self._has_marks and self._is_marked(at)):
                return payload, blob
        return self._load(name)

    def _load(self, name: bytes) -> tuple[bytes, bytes] | None:
        """Load like :meth:`load` an entry that was not read before, or that something is wrong with."""
        if not self._file.is_own(os.fstat(self._fd)):
            raise OSError(errno.EBADF, "the program closed its descriptor; it is opened again", self.path)
        at, place = self._find(name)
        if place is None:
            return None
        start, middle, end = self._bounds(place)
        read = bytes(self._read(start, end - start))
        blob, payload = read[: middle - start], read[middle - start :]
        refuse_unless_whole(name.hex(), payload, blob, self._keys)
        if self._keys is None and len(blob) <= _KNOWN_RECORD_BYTES:  # with keys it is not the digest that proves it
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[name] = at, middle, end - middle, bound_with(blob, name.hex()), digest_of(blob), blob
        return payload, blob

    def view(self, name: bytes) -> memoryview | None:
        """Returns the payload that :meth:`load` would."""
        loaded = self.load(name)
        return None if loaded is None else memoryview(loaded[0])

    def _bounds(self, place: tuple[bytes, int, int, int]) -> tuple[int, int, int]:
        """Returns the offsets at which record and payload of an entry begin, and the payload ends."""
        _, start, payload_bytes, record_bytes = place
        middle = start + record_bytes
        end = middle + payload_bytes
        if start < START_BYTES or not HEAD_BYTES <= record_bytes <= LARGEST_RECORD_BYTES or end > self._table:
            raise ValueError("its place is not in the file")
        return start, middle, end

    def find(self, name: bytes) -> tuple[bytes, int, int, int] | None:
        """Returns name, offset, and the bytes of payload and record that the table states for this entry."""
        return self._find(name)[1]

    def _find(self, name: bytes) -> tuple[int, tuple[bytes, int, int, int] | None]:
        """Returns the offset of an entry's slot, and what the slot holds."""
        slots = self._slots
        first = int.from_bytes(name[:8], "little")
        for slot in range(first, first + MOST_PROBES) if slots else ():
            offset = self._table + slot % slots * _SLOT_BYTES
            found = _pread(self._fd, _SLOT_BYTES, offset)
            if len(found) < _SLOT_BYTES or found == _EMPTY:
                break
            if found[:32] == name:
                self._met_flag = found[HIDDEN_AT] or self._met_flag
                return offset, None if found[HIDDEN_AT] else SLOT.unpack(found)
        return 0, None

    def places(self) -> list[Place]:
        """Returns the place of each entry. Raises :class:`OSError`, and :class:`ArchiveError` where they overlap.

        Places of a writer never overlap; together, overlapping entries could exceed the file's size. Checked while the
        table is read, since each place takes more memory than its slot takes of the file.
        """
        places: list[Place] = []
        left_bytes = self._table - START_BYTES
        for part in self._slots_of(Table(self._table, self._slots, self.entries)):
            used = [Place._make(fields) for fields in SLOT.iter_unpack(part) if fields[1]]
            places += used
            if len(places) > self.entries:
                raise ArchiveError(f"{self.path}: it is damaged: it has more than the {self.entries} entries it states")
            left_bytes -= sum(place.taken_bytes for place in used)
            if left_bytes < 0:
                raise ArchiveError(f"{self.path}: it is damaged: its entries overlap")
        return sorted(places)

    def _slots_of(self, table: Table) -> Iterator[memoryview]:
        """Yields the table in parts of whole slots, one at a time in memory. Raises :class:`OSError`."""
        for first in range(0, table.slots, _TABLE_SLOTS):
            count = min(_TABLE_SLOTS, table.slots - first)
            read = self._read(table.offset + first * _SLOT_BYTES, count * _SLOT_BYTES)
            yield read[: len(read) // _SLOT_BYTES * _SLOT_BYTES]

    def close(self) -> None:
        """Close the file."""
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
        if not self._is_whole(start, table, end):
            self.damage = "it is damaged: its table is not what its digest says"
            return
        self._table, self._slots, self.entries = table

    def _read(self, offset: int, size_bytes: int) -> memoryview:
        """Returns bytes of the file, or fewer at its end. Raises :class:`OSError`."""
        return memoryview(_read_all(self._fd, size_bytes, offset))

    def _is_marked(self, slot_at: int) -> bool:
        return _pread(self._fd, 1, slot_at + HIDDEN_AT) != b"\0"


def is_bundle(path: str) -> bool:
    """Returns whether a path leads to a file that begins as a bundle does. Raises nothing."""
    try:
        with opened(path, _READ) as fd:
            return stat.S_ISREG(os.fstat(fd).st_mode) and begins(os.read(fd, START_BYTES))
    except (OSError, ValueError):
        return False


def _read_all(fd: int, size_bytes: int, offset: int) -> bytes:
    """Returns bytes of a file, by several reads if a server returns few at once."""
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


def refuse_unsafe(path: str, status: os.stat_result, *, is_signed: bool) -> None:
    """Refuse what is not a file, and, unless its entries are signed, a file that another user could have changed."""
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

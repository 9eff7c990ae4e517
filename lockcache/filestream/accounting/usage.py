"""The accounting page: how many bytes and entries each shard holds, for all processes.

Keeps the arithmetic of invariant 3 (hard cap): one file of 4 KiB, 256 slots of (bytes, entries), int64 little-endian. A
shard's bytes are its entries plus what is reserved for staged writes. A slot is changed under its shard's lock only;
the sum of all is read without one, and each writer reads it after its own reservation stands, so of two writers that
overshoot together at least one sees it. ``pread`` and ``pwrite``, no ``mmap``, and on network file systems past the
client's cache (:meth:`.CacheDirectory.usage`): an NFS client caches reads and writes of a file that stays open, and a
lock on another file changes nothing of that (seen: 1.9 times the cap with two hosts). On FUSE it is opened for each use
(:class:`ReopenedPage`).

Not promised: exactness where locks exclude nobody, or after a process died between a rename and its give-back. Both
leave a drift; the second kind only ever counts too much. :mod:`.repair.recount` sets a slot right.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import stat
import struct
import time
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from lockcache.filestream.disk import SHARDS, Descriptor, Layout, is_fresh, opened, revalidate

_SLOT: Final = struct.Struct("<qq")
_SLOT_BYTES: Final = _SLOT.size
PAGE_BYTES: Final = SHARDS * _SLOT.size
_LARGEST: Final = 2**63 - 1
_EMPTY_PAGE: Final = bytes(PAGE_BYTES)
_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)

# Looked up once, for the write path.
_lstat, _pread, _pwrite, _pack, _unpack = os.lstat, os.pread, os.pwrite, _SLOT.pack, _SLOT.unpack


class Slot(NamedTuple):
    """The sums that are accounted for in one shard, or in all of them."""

    #: The bytes of entries (record files included) and of staged writes.
    bytes: int
    entries: int


class UsagePage:
    """The open accounting page.

    The descriptor lives as long as this object: a thread may be using it while another one attaches to a new
    directory, and a closed number could by then belong to somebody else's file.
    """

    __slots__ = ("__weakref__", "_fd", "_file", "_identity", "_is_ours_alone")

    def __init__(self, file: Descriptor) -> None:
        self._file = file
        self._fd = file.number
        status = os.fstat(self._fd)
        # Held open, so that no other file can get this number.
        self._is_ours_alone = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        self._identity = (status.st_dev, status.st_ino, PAGE_BYTES)

    def is_at(self, path: str) -> bool:
        """Returns whether ``path`` leads to this page, and it has the size that it must have.

        If not, the directory was deleted, moved away or made again underneath, and everybody else accounts elsewhere;
        or the page was damaged, and what is missing would count for nothing. A client of a network file system may
        still lead to a page that another host has replaced; the server says of it that it has no name.
        """
        try:
            status = _lstat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return False
            raise
        return (status.st_dev, status.st_ino, status.st_size) == self._identity and status.st_nlink > 0

    # What a write asks; see :class:`NfsPage`.
    was_at = is_at

    def is_ours_alone(self) -> bool:
        """Returns whether the page was a plain file with one name when opened: planted links must not be written."""
        return self._is_ours_alone

    def slot(self, shard: int) -> Slot:
        blob = os.pread(self._fd, _SLOT.size, shard * _SLOT.size)
        return Slot(*_SLOT.unpack(blob)) if len(blob) == _SLOT.size else Slot(0, 0)

    def add_locked(self, shard: int, bytes_: int, entries: int, known: Slot | None = None) -> Slot:
        """Change a slot by so much. Never out of range: what would be is drift, or damage, that a recount repairs.

        Returns what the slot is now. ``known``: what it was, from an earlier call under the same hold of the lock.
        Requires: shard lock.
        """
        # Written out, twice in every put: by way of slot() and set_locked() it is 2 us more.
        offset = shard * _SLOT_BYTES
        if known is not None:
            bytes_, entries = bytes_ + known[0], entries + known[1]
        elif len(blob := _pread(self._fd, _SLOT_BYTES, offset)) == _SLOT_BYTES:
            old_bytes, old_entries = _unpack(blob)
            bytes_ += old_bytes
            entries += old_entries
        else:
            self._note_cut()
        if 0 <= bytes_ <= _LARGEST and 0 <= entries <= _LARGEST:
            _pwrite(self._fd, _pack(bytes_, entries), offset)
        else:
            self.set_locked(shard, Slot(bytes_, entries))
        return Slot(bytes_, entries)

    def set_locked(self, shard: int, slot: Slot) -> None:
        """Requires: shard lock."""
        os.pwrite(self._fd, _encode_slot(slot), shard * _SLOT.size)

    def slots(self) -> list[Slot]:
        """Returns all slots, read at once."""
        numbers = self._numbers()
        return list(map(Slot._make, zip(numbers[::2], numbers[1::2], strict=True)))

    def image(self) -> bytes:
        """Returns the page's bytes. As long as they are the same, nothing was accounted for."""
        return os.pread(self._fd, PAGE_BYTES, 0)

    def total_bytes(self) -> int:
        """Returns the bytes of entries and reservations in the whole directory."""
        return sum(self._numbers()[::2])

    def total(self) -> Slot:
        numbers = self._numbers()
        return Slot(sum(numbers[::2]), sum(numbers[1::2]))

    def _note_cut(self) -> None:
        """Do nothing about a page that is too short: what is missing counts for nothing, until the next look at it."""

    def _numbers(self) -> array[int]:
        blob = self.image()
        if len(blob) < PAGE_BYTES:
            self._note_cut()
            blob = (blob + _EMPTY_PAGE)[:PAGE_BYTES]
        numbers = array("q", blob)
        if _BIG_ENDIAN:
            numbers.byteswap()
        return numbers


class NfsPage(UsagePage):
    """The page on NFS, where each look at its path is a call to the server."""

    __slots__ = ("_layout", "_was_there_at")

    def __init__(self, file: Descriptor, layout: Layout) -> None:
        super().__init__(file)
        self._layout = layout
        self._was_there_at = -math.inf

    def is_at(self, path: str) -> bool:
        is_there = super().is_at(path)
        if not is_there:
            self._was_there_at = -math.inf
        return is_there

    def was_at(self, path: str) -> bool:
        """Returns what :meth:`is_at` does, or true if the server said so less than a second ago.

        So what is written within a second into a directory that was deleted or moved away, and that another process has
        made again, may not be accounted for, and exceed its cap, until a recount.
        """
        if is_fresh(self._was_there_at):
            return True
        asked_at = time.monotonic()
        # The client may remember that the page has its name, and not ask the server.
        revalidate(self._layout, self._layout.own)
        is_there = self.is_at(path)
        if is_there:
            self._was_there_at = asked_at
        return is_there

    def _note_cut(self) -> None:
        raise OSError(errno.ESTALE, "the accounting page was cut")


class ReopenedPage(UsagePage):
    """The page on a FUSE file system, opened for each use: what one host closes the next that opens it sees.

    While it stays open, JuiceFS keeps what was written to it to itself and shows what was read before, with O_DIRECT
    too; and GlusterFS takes a write of less than a block, O_DIRECT, and loses it. So a slot is written without, and
    the page read with it, whole and aligned, because GlusterFS remembers small files for a second. By the number, and
    not the name: the name may lead to a page that others are only making.
    """

    __slots__ = ()

    def slot(self, shard: int) -> Slot:
        return self.slots()[shard]

    def add_locked(self, shard: int, bytes_: int, entries: int, known: Slot | None = None) -> Slot:
        old = self.slot(shard) if known is None else known
        slot = Slot(old[0] + bytes_, old[1] + entries)
        self.set_locked(shard, slot)
        return slot

    def set_locked(self, shard: int, slot: Slot) -> None:
        page = self._opened(os.O_RDWR)
        try:
            os.pwrite(page.number, _encode_slot(slot), shard * _SLOT_BYTES)
            page.end_writing()  # which is when it leaves this host
        finally:
            page.close()

    def image(self) -> bytes:
        try:
            with self._opened(os.O_RDONLY | _DIRECT) as fd, mmap.mmap(-1, PAGE_BYTES) as buffer:
                return buffer[: os.preadv(fd, [buffer], 0)]
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        with self._opened(os.O_RDONLY) as fd:  # a mount that refuses O_DIRECT
            return os.pread(fd, PAGE_BYTES, 0)

    def _opened(self, flags: int) -> Descriptor:
        return opened(f"/proc/self/fd/{self._fd}", flags | os.O_CLOEXEC)


def total_of(slots: Iterable[Slot]) -> Slot:
    """Returns the sum of some slots."""
    slots = list(slots)
    return Slot(sum(slot.bytes for slot in slots), sum(slot.entries for slot in slots))


def encode_page(slots: list[Slot]) -> bytes:
    """Returns the bytes of a new page. Values out of range, which planted names may state, are cut."""
    return b"".join(map(_encode_slot, slots))


def _encode_slot(slot: Slot) -> bytes:
    return _SLOT.pack(*(min(max(0, number), _LARGEST) for number in slot))


_BIG_ENDIAN: Final = struct.pack("=H", 1) != struct.pack("<H", 1)

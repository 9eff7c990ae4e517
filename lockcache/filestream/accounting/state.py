# SPDX-License-Identifier: Apache-2.0
"""The state page, ``lockcache/state``: what a directory states of itself, and how much each shard holds.

Keeps the arithmetic of invariant 3 (hard cap): one page of two blocks. Block 0 is the head (:mod:`.head`), with the cap
in it; block 1 has 256 slots of (bytes, entries), int64 little-endian. A shard's bytes are its entries plus what is
reserved for staged writes. A slot is changed under its shard's lock only, block 0 under the directory's; both are read
without one. Each writer reads cap and sum by one ``pread`` after its own reservation stands: so of two writers that
overshoot together at least one sees it, and a process that lowers the cap sees every reservation that was made under
the old one. Behind the page in the same file are the table of costs (:mod:`.compile_once.costs`), and what is known of
the worth of entries (:mod:`.worth`).

``pread`` and ``pwrite``, no ``mmap``, and on network file systems past the client's cache
(:meth:`.CacheDirectory.usage`): an NFS client caches reads and writes of a file that stays open, and a lock on another
file changes nothing of that (seen: 1.9 times the cap with two hosts). On FUSE it is opened for each use
(:mod:`.network_pages`).

The page states the inode of the folder that it was made in: not the device, which differs between clients of a server,
and not its own inode, which a hard link keeps. So a copied directory is counted again, and its copy of the page is not
believed. Not promised: exactness where locks exclude nobody, or after a process died between a rename and its
give-back. Both leave a drift; the second kind only ever counts too much. :mod:`.repair.recount` sets a slot right.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import time
from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar, Final, NamedTuple

from lockcache.filestream.accounting.head import (
    AGES_END,
    BEGINNING_BYTES,
    COUNTERS_AT,
    NOT_COUNTED,
    Head,
    decode_head,
    encode_head,
)
from lockcache.filestream.disk import (
    NO_OTHERS,
    SHARDS,
    UPDATE,
    Hosts,
    KeptDescriptor,
    Layout,
    Space,
    probe_space,
    read_small,
    replacing,
    write_all,
)

_SLOT: Final = struct.Struct("<qq")
_SLOT_BYTES: Final = _SLOT.size
_SLOTS_AT: Final = 4096
PAGE_BYTES: Final = _SLOTS_AT + SHARDS * _SLOT.size
_COSTS_BYTES: Final = 16384
#: Hits and recorded costs (:mod:`.worth`), behind the table of costs.
HITS_AT: Final = PAGE_BYTES + _COSTS_BYTES
HITS_BYTES: Final = 16384
PRICES_AT: Final = HITS_AT + HITS_BYTES
PRICES_BYTES: Final = 32768
#: With all tables, which take no block before something is in them.
FILE_BYTES: Final = PRICES_AT + PRICES_BYTES
_LARGEST: Final = 2**63 - 1
_DAY_SECONDS: Final = 86400.0
# Stated where the inodes of folders do not last, as on most FUSE file systems: no folder has this one.
_ANY_FOLDER: Final = NOT_COUNTED - 1

# Looked up once, for the write path.
_lstat, _pread, _pwrite, _pack, _unpack = os.lstat, os.pread, os.pwrite, _SLOT.pack, _SLOT.unpack_from
_identify: Final = attrgetter("st_dev", "st_ino", "st_size", "st_nlink")
# Of all slots at once.
_all_bytes: Final = struct.Struct("<" + "q8x" * SHARDS).unpack_from
_all_entries: Final = struct.Struct("<" + "8xq" * SHARDS).unpack_from


class Slot(NamedTuple):
    """The sums that are accounted for in one shard, or in all of them."""

    #: The bytes of entries (record files included) and of staged writes.
    bytes: int
    entries: int


class Sums(NamedTuple):
    """The slots of a page, by shard."""

    bytes: tuple[int, ...]
    entries: tuple[int, ...]


class StatePage:
    """The open state page.

    The descriptor lives as long as this object: a thread may be using it while another one attaches to a new
    directory, and a closed number could by then belong to somebody else's file.
    """

    __slots__ = ("__weakref__", "_beginning", "_changed_at", "_fd", "_file", "identity", "is_ours_alone")

    #: The flags to open it by; the first that the mount takes are right.
    ways: ClassVar[tuple[int, ...]] = (UPDATE,)

    def __init__(self, file: KeptDescriptor, _: Hosts = NO_OTHERS) -> None:
        """``file`` is the open page. The other hosts matter to some kinds of it."""
        self._file = file
        self._fd = file.number
        status = os.fstat(self._fd)
        file.is_own(status)
        # Of the file as it was opened: by them each read notices that the number is another file's now.
        self._beginning = b""
        # Held open, so that no other file can get this number.
        #: Whether it was a plain file with one name when it was opened: planted links must not be written.
        self.is_ours_alone = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        self._changed_at = status.st_mtime
        #: Tells it from every other file that is there, and from itself with a second name: another directory, a copy
        #: by hard links, has the page too then, and neither may write to it.
        self.identity = (status.st_dev, status.st_ino, FILE_BYTES, 1)

    def is_at(self, path: str) -> bool:
        """Returns whether ``path`` leads to this page, and it has the size that it must have, and no other name.

        If not, the directory was deleted, moved away or made again underneath, and everybody else accounts elsewhere;
        or it was copied by hard links; or the page was damaged, and what is missing would count for nothing. A client
        of a network file system may still lead to a page that another host has replaced; the server says of it that it
        has no name.
        """
        try:
            status = _lstat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return False
            raise
        return _identify(status) == self.identity

    # What a write asks; see :class:`.NfsPage`.
    was_at = is_at

    def read_if_at(self, path: str, shard: int) -> bytes | None:
        """Returns the page up to a shard's slot; ``None`` where :meth:`was_at` is false, or the number the program's.

        Requires: shard lock.
        """
        # is_at, written out: each put asks twice. From the beginning on, which costs less than to ask whose file it is.
        try:
            if _identify(_lstat(path)) != self.identity:
                return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            image = _pread(self._fd, _SLOTS_AT + (shard + 1) * _SLOT_BYTES, 0)
        except OSError:  # a folder or a pipe may have the number, or nothing
            if self.is_own():
                raise
            return None
        if image.startswith(self._beginning):
            return image
        self.is_own()
        return None

    def begin_use(self, image: bytes) -> None:
        """Have each later read find these first bytes: magic, version and folder, which stay as long as the page.

        And let the file look used, once a day: what is old may be removed by a cleaner, and the cap with it.
        """
        self._beginning = image[:BEGINNING_BYTES]
        if abs(time.time() - self._changed_at) > _DAY_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(self._fd)

    def is_own(self) -> bool:
        """Returns whether the number is still the page's; forgets it if not."""
        try:
            status = os.fstat(self._fd)
        except OSError as error:
            if error.errno == errno.EBADF:
                self._file.forget()
            else:
                self._file.trust_number()
            return False
        return (status.st_dev, status.st_ino) == self._file.identity or self._file.is_own(status)

    def will_be_dropped(self) -> None:
        """Have the number closed with this object if it is still the page's, which no call that may fail asks then."""
        if self.is_own():
            self._file.trust_number()

    def refuse_other_file(self) -> None:
        """Raise :class:`OSError` (ESTALE) if the program closed the descriptor, and forget its number."""
        if not self.is_own():
            raise OSError(errno.ESTALE, "the program closed the descriptor of the state page")

    def slot(self, shard: int) -> Slot:
        """Returns a slot; what is missing of a page that was cut counts for nothing."""
        self.refuse_other_file()
        blob = os.pread(self._fd, _SLOT.size, _SLOTS_AT + shard * _SLOT.size)
        return Slot(*_SLOT.unpack(blob)) if len(blob) == _SLOT.size else Slot(0, 0)

    def add_locked(
        self, shard: int, bytes_: int, entries: int, known: bytes | tuple[int, int] = b""
    ) -> tuple[int, int]:
        """Change a slot by so much. Never out of range: what would be is drift, or damage, that a recount repairs.

        Returns what the slot is now. ``known``: what :meth:`read_if_at` or an earlier call returned under the same hold
        of the lock. Requires: shard lock.
        """
        # Written out, twice in every put: by way of slot() and set_locked() it is 2 us more, and a Slot 0.3.
        offset = _SLOTS_AT + shard * _SLOT_BYTES
        if not isinstance(known, tuple):
            known = _unpack(known, offset) if known else self.slot(shard)
        bytes_, entries = bytes_ + known[0], entries + known[1]
        if (bytes_ | entries) >> 63:  # one of them is negative, or too large
            self.set_locked(shard, Slot(bytes_, entries))
        else:
            _pwrite(self._fd, _pack(bytes_, entries), offset)
        return bytes_, entries

    def set_locked(self, shard: int, slot: Slot) -> None:
        """Requires: shard lock."""
        self.write(_SLOTS_AT + shard * _SLOT_BYTES, _encode_slot(slot))

    def write(self, offset: int, content: bytes, *, fsync: bool = False) -> None:
        """Change a part of the page. Requires: its lock; that of a slot is the shard's, of the rest the directory's."""
        os.pwrite(self._fd, content, offset)
        if fsync:
            os.fsync(self._fd)

    def slots(self) -> list[Slot]:
        """Returns all slots, read at once."""
        return slots_in(self.whole())

    def image(self, size: int = PAGE_BYTES) -> bytes:
        """Returns the page's bytes, by one read. As long as they are the same, nothing was accounted for.

        ``size``: :data:`FILE_BYTES`, with the tables behind the page.
        """
        image = _pread(self._fd, size, 0)
        if not image.startswith(self._beginning):
            self.refuse_other_file()
        return image

    # For the sums in it; see :class:`.NfsPage`.
    whole = image

    def total_bytes(self) -> int:
        """Returns the bytes of entries and reservations in the whole directory."""
        return bytes_in(self.whole())

    def total(self) -> Slot:
        return Slot(*map(sum, sums_in(self.whole())))


def total_of(slots: Iterable[Slot]) -> Slot:
    """Returns the sum of some slots."""
    slots = list(slots)
    return Slot(sum(slot.bytes for slot in slots), sum(slot.entries for slot in slots))


def slots_in(image: bytes) -> list[Slot]:
    """Returns the slots of a page; what is missing of a page that was cut counts for nothing."""
    return list(map(Slot._make, _SLOT.iter_unpack(image.ljust(PAGE_BYTES, b"\0")[_SLOTS_AT:PAGE_BYTES])))


def bytes_in(image: bytes) -> int:
    """Returns the bytes of entries and reservations in the whole directory, as a page states them."""
    return sum(_all_bytes(image.ljust(PAGE_BYTES, b"\0"), _SLOTS_AT))


def sums_in(image: bytes) -> Sums:
    """Returns the sums of each shard, as a page states them, without an object for each slot."""
    whole = image.ljust(PAGE_BYTES, b"\0")
    return Sums(_all_bytes(whole, _SLOTS_AT), _all_entries(whole, _SLOTS_AT))


def encode_page(head: Head, slots: Iterable[Slot] = (), older: bytes = b"") -> bytes:
    """Returns the bytes of a new page. Values out of range, which planted names may state, are cut.

    ``older``: the page that it replaces, whose counters and ages go on. Raises as :func:`.head.encode_head`.
    """
    fixed = encode_head(head) + older[COUNTERS_AT:AGES_END]
    blocks = fixed.ljust(_SLOTS_AT, b"\0") + b"".join(map(_encode_slot, slots))
    return blocks.ljust(PAGE_BYTES, b"\0")


def replace_state(layout: Layout, page: bytes) -> None:
    """Put a new page into the place of the old one, whole. Raises :class:`OSError`; then the old one stands."""
    with replacing(layout, layout.state) as fd:
        write_all(fd, page)
        os.ftruncate(fd, FILE_BYTES)


def head_of(layout: Layout) -> Head | None:
    """Returns the head of the page; ``None`` where there is none, or it is damaged or cannot be read."""
    try:
        return decode_head(read_state(layout))
    except OSError:
        return None


def write_state(layout: Layout, page: bytes) -> None:
    """Write a new page into the file of one that is not counted yet. Raises :class:`OSError`."""
    file = layout.reach.open(layout.state, UPDATE)
    with file as fd:
        os.pwrite(fd, page, 0)
        os.fsync(fd)
        file.end_writing()


def read_state(layout: Layout) -> bytes:
    """Returns the bytes of the page, for a look without opening the directory; none where there is no page."""
    try:
        return read_small(layout, layout.state, PAGE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return b""


def folder_of(layout: Layout) -> int:
    """Returns what a page of this directory states as its folder. Raises :class:`OSError`."""
    return os.lstat(layout.own).st_ino % NOT_COUNTED if layout.hosts.has_lasting_inodes else _ANY_FOLDER


def is_of(layout: Layout, folder: int) -> bool:
    """Returns whether what states this folder was made in this directory, and not copied. Raises :class:`OSError`.

    A directory may be on a FUSE file system for some processes, and not for others.
    """
    if folder == _ANY_FOLDER or not layout.hosts.has_lasting_inodes:
        return 0 < folder < NOT_COUNTED  # 0.3.0 stated 0 of a page that is being counted
    return folder == os.lstat(layout.own).st_ino % NOT_COUNTED


def space_of(layout: Layout) -> Space:
    """Returns how a directory counts, as it states or as its file system would have it. Raises :class:`OSError`."""
    found: Space | None = layout.space
    if found is None:
        head = head_of(layout)
        found = layout.space = probe_space(layout.root) if head is None else head.space
    return found


def _encode_slot(slot: Slot) -> bytes:
    return _SLOT.pack(*(min(max(0, number), _LARGEST) for number in slot))

"""Seed: a directory's own copy of a bundle, and the marks of entries that the directory no longer serves.

Keeps invariant 2 (last write wins) for a directory with a seed. What is in ``entries/`` is read first, so a newer value
wins for as long as it is there. A process that removes an entry, to evict it, to delete it, or because a write was
dropped, first marks its name in the seed (:func:`hide`), and a marked entry is a miss: else the seed's older value
would come back. A put marks nothing and does not look whether there is a seed.

A mark is one byte in the copy's own table, which readers read anyway, in memory that all processes share. A mark is
never removed; a death between mark and removal leaves an entry that is read as before, and is compiled again once it is
evicted. Not promised: that marks of the last seconds survive a power cut.

A copy is made, replaced and removed with the locks of all shards held (:mod:`.seeding`), so that no mark is lost
meanwhile; its marks outlive it (:mod:`.seeding.tombstones`). Not promised: marks for removals without the shard's lock,
without a free descriptor, or in a directory that was deleted meanwhile. Readers and removals ignore anything in the
copy's place that is not a plain file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from lockcache.filestream.bundle_format import (
    END_BYTES,
    HIDDEN_AT,
    MOST_PROBES,
    SLOT,
    START_BYTES,
    Table,
    is_whole,
    read_end,
)
from lockcache.filestream.disk import READ, UPDATE, Layout, open_below

_EMPTY: Final = bytes(SLOT.size)
# The reasons why an entry is not served: it was removed, or stored and evicted; or the whole seed is being removed.
_HIDDEN: Final = 1
#: The flag of entries of a seed that is on its way out.
WITHDRAWN: Final = 2

# Slots that are read, and written, at once.
_AT_ONCE: Final = 4096

# The errors of opening something else in a file's place: a symlink, a folder, a socket.
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO)


def has_seed(layout: Layout) -> bool:
    """Returns whether the directory has a seed's file."""
    return os.access(layout.seed, os.F_OK, effective_ids=True)


def hide(layout: Layout, names: Iterable[str]) -> int:
    """Hide these entries in the seed, if there is one. Returns how many it would have served.

    Raises :class:`OSError`; then the entries must not be removed. Requires: the lock of their shard.
    """
    if not has_seed(layout):
        return 0
    with opened_seed(layout, UPDATE) as fd:
        return 0 if fd is None else hide_in(fd, names)


@contextmanager
def opened_seed(layout: Layout, flags: int = READ) -> Iterator[int | None]:
    """Yields the descriptor of the seed; ``None`` if there is none, or something other than a file.

    Raises :class:`OSError`.
    """
    try:
        file = open_below(layout, layout.seed, flags)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        yield None
        return
    with file as fd:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None


def hide_in(fd: int, names: Iterable[str]) -> int:
    """Hide entries like :func:`hide`, in an open seed."""
    table, hidden = _table(fd), 0
    if table is None:
        return 0
    for name in names:
        offset, flag = _find(fd, table, bytes.fromhex(name))
        if offset and flag != _HIDDEN:
            os.pwrite(fd, bytes([_HIDDEN]), offset + HIDDEN_AT)
            hidden += not flag
    return hidden


def known_in(fd: int, names: Iterable[str]) -> set[str]:
    """Returns those of these names that an open seed has an entry for, served or not."""
    table = _table(fd)
    return set() if table is None else {name for name in names if _find(fd, table, bytes.fromhex(name))[0]}


def entries_of(fd: int) -> int:
    """Returns how many entries an open file states that it has; 0 for what is not a bundle."""
    table = _table(fd)
    return 0 if table is None else table.entries


def is_served(layout: Layout, name: str) -> bool:
    """Returns whether the seed has an entry, and serves it. Raises :class:`OSError`."""
    with opened_seed(layout) as fd:
        table = None if fd is None else _table(fd)
        if fd is None or table is None:
            return False
        offset, flag = _find(fd, table, bytes.fromhex(name))
        return bool(offset) and not flag


def withdraw(fd: int) -> set[str]:
    """Let an open seed serve nothing from now on. Returns the names that it did not serve before.

    Those that a death left withdrawn are not among them. Requires: the locks of all shards.
    """
    names = set()
    for offset, chunk in _chunks(fd):
        changed = bytearray(chunk)
        for at in range(0, len(chunk), SLOT.size):
            slot = chunk[at : at + SLOT.size]
            if slot[HIDDEN_AT] == _HIDDEN:
                names.add(slot[:32].hex())
            elif slot != _EMPTY:
                changed[at + HIDDEN_AT] = WITHDRAWN
        os.pwrite(fd, changed, offset)
    return names


def hidden_in(fd: int) -> set[str]:
    """Returns the names that an open seed does not serve, but for those that a death left withdrawn."""
    return {
        chunk[at : at + 32].hex()
        for _, chunk in _chunks(fd)
        for at in range(0, len(chunk), SLOT.size)
        if chunk[at + HIDDEN_AT] == _HIDDEN
    }


def stands(layout: Layout) -> bool:
    """Returns whether there is a seed that serves: a power cut may leave only its name, a death a withdrawn one."""
    try:
        with opened_seed(layout) as fd:
            return fd is not None and _table(fd) is not None and WITHDRAWN not in _flags(fd)
    except OSError:
        return False


def is_in_order(fd: int) -> bool:
    """Returns whether an open bundle may become a seed: its table matches its digest, and nothing is marked."""
    table = _table(fd)
    if table is None:
        return False
    start, end = os.pread(fd, START_BYTES, 0), os.pread(fd, END_BYTES, table.offset + table.slots * SLOT.size)
    return is_whole(start, (chunk for _, chunk in _chunks(fd)), end) and not any(_flags(fd))


def _flags(fd: int) -> set[int]:
    return {flag for _, chunk in _chunks(fd) for flag in chunk[HIDDEN_AT :: SLOT.size]}


def _table(fd: int) -> Table | None:
    """Returns the place of the table; ``None`` for a file that is not a bundle: no reader serves anything from it."""
    # Not by fstat, for which an NFS client asks the server after each read, for the time of that read.
    size_bytes = os.lseek(fd, 0, os.SEEK_END)
    start = os.pread(fd, START_BYTES, 0)
    try:
        return read_end(start, os.pread(fd, END_BYTES, max(0, size_bytes - END_BYTES)), size_bytes)
    except ValueError:
        return None


def _find(fd: int, table: Table, name: bytes) -> tuple[int, int]:
    """Returns the offset of an entry's slot, and its flag; zeros if there is none."""
    first = int.from_bytes(name[:8], "little")
    for probe in range(MOST_PROBES):
        offset = table.offset + (first + probe) % table.slots * SLOT.size
        slot = os.pread(fd, SLOT.size, offset)
        if slot[:32] == name:
            return offset, slot[HIDDEN_AT]
        if slot == _EMPTY:
            break
    return 0, 0


def _chunks(fd: int) -> Iterator[tuple[int, bytes]]:
    """Yields the table in parts of whole slots: where each begins, and what it is."""
    table = _table(fd)
    for first in range(0, table.slots if table else 0, _AT_ONCE):
        if table:
            offset = table.offset + first * SLOT.size
            read = os.pread(fd, min(_AT_ONCE, table.slots - first) * SLOT.size, offset)
            yield offset, read[: len(read) // SLOT.size * SLOT.size]

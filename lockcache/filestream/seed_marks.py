# SPDX-License-Identifier: Apache-2.0
"""Seed: a directory's own copy of a bundle, and the marks of entries that were deleted from the directory.

A seed is a source: what ``entries/`` lacks is read from it, also after an eviction or a dropped write. A deletion must
not bring that back, so it marks the name in the copy (:func:`hide`), and a marked entry is a miss. A mark is one byte
in the copy's own table, which readers read anyway, in memory that all processes share. It is never removed, is not
evicted, and ends with the copy: a newer bundle is read whole. Not promised: that marks of the last seconds survive a
power cut, or those that are made while the copy is replaced.

Readers and deletions ignore anything in the copy's place that is not a plain file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
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
from lockcache.filestream.disk import READ, UPDATE, Layout

_EMPTY: Final = bytes(SLOT.size)
# The reasons why an entry is not served: it was deleted, or the whole seed is being removed.
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


def hide(layout: Layout, name: str) -> bool:
    """Hide an entry in the seed, if there is one. Returns whether it was served. Raises :class:`OSError`."""
    if not os.access(layout.seed, os.F_OK, effective_ids=True):
        return False  # of most directories: less than an exception
    with opened_seed(layout, UPDATE) as fd:
        table = None if fd is None else _table(fd)
        if fd is None or table is None:
            return False
        offset, flag = _find(fd, table, bytes.fromhex(name))
        if not offset or flag:
            return False
        os.pwrite(fd, bytes([_HIDDEN]), offset + HIDDEN_AT)
        return True


@contextmanager
def opened_seed(layout: Layout, flags: int = READ) -> Iterator[int | None]:
    """Yields the descriptor of the seed; ``None`` if there is none, or something other than a file.

    Raises :class:`OSError`.
    """
    try:
        file = layout.reach.open(layout.seed, flags)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        yield None
        return
    with file as fd:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None


def withdraw(fd: int) -> None:
    """Let an open seed serve nothing from now on: it was replaced or removed."""
    for offset, chunk in _chunks(fd):
        changed = bytearray(chunk)
        for at in range(0, len(chunk), SLOT.size):
            if chunk[at : at + SLOT.size] != _EMPTY:
                changed[at + HIDDEN_AT] = WITHDRAWN
        os.pwrite(fd, changed, offset)


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

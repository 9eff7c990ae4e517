# SPDX-License-Identifier: Apache-2.0
"""Seed: a directory's own copy of a bundle, and the marks of entries that were deleted from the directory.

A seed is a source: what ``entries/`` lacks is read from it, also after an eviction or a dropped write. A deletion must
not bring that back, so it marks the name in the copy (:func:`hide`), and a marked entry is a miss. A mark is one byte
in the copy's own table, which readers read anyway, in memory that all processes share. It is never removed, is not
evicted, and ends with the copy: a newer bundle is read whole. Not promised: that marks of the last seconds survive a
power cut, or those that are made while the copy is replaced.

A file with a second name is also the seed of another directory, which was copied from this one by hard links, and is
not written to: a deletion gives this directory a file of its own first. Readers that have the older one open find
that within a second, for which the deletion waits (:func:`wait_for_readers`); others that come in that second do not.
Until then there are both: next to what a directory shares with a copy of it, the cap does not count the second one.

Readers and deletions ignore anything in the copy's place that is not a plain file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
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
from lockcache.filestream.disk import (
    READ,
    READ_ANYHOW_BYTES,
    UPDATE,
    Descriptor,
    Layout,
    ProcessLock,
    is_at,
    is_hole,
    naming,
    write_all,
)

_EMPTY: Final = bytes(SLOT.size)
# The reasons why an entry is not served: it was deleted, or the whole seed is being removed.
_HIDDEN: Final = 1
#: The flag of entries of a seed that is on its way out.
WITHDRAWN: Final = 2

# Slots that are read, and written, at once.
_AT_ONCE: Final = 4096

# Of a seed that others link again and again.
_MOST_COPIES: Final = 3
# A process that attaches a seed has its lock while it copies.
_LOCK_SECONDS: Final = 10.0
#: A reader of the seed looks so often whether its file is still the directory's.
LOOK_SECONDS: Final = 1.0
# The read-ahead of a parallel file system.
_COPIED_AT_ONCE_BYTES: Final = 4 << 20

# The errors of opening something else in a file's place: a symlink, a folder, a socket.
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO)


def has_seed(layout: Layout) -> bool:
    """Returns whether the directory has a seed's file."""
    return os.access(layout.seed, os.F_OK, effective_ids=True)


def hide(layout: Layout, name: str) -> bool:
    """Hide an entry in the seed, if there is one. Returns whether it was served. Raises :class:`OSError`."""
    if not os.access(layout.seed, os.F_OK, effective_ids=True):
        return False  # of most directories: less than an exception
    was_linked = False
    for _ in range(_MOST_COPIES):
        with opened_seed(layout, UPDATE) as fd:
            offset = 0 if fd is None else _served_at(fd, bytes.fromhex(name))
            if fd is None or not offset:
                return False
            status = os.fstat(fd)
            # The one name of a file that was replaced meanwhile may be that of another directory.
            if status.st_nlink == 1 and is_at(status, layout.seed):
                os.pwrite(fd, bytes([_HIDDEN]), offset + HIDDEN_AT)
                break
        was_linked |= _make_own(layout)
    else:
        raise OSError(errno.EMLINK, "it is given another name again and again", layout.seed)
    if was_linked:
        wait_for_readers()
    return True


def has_one_name(fd: int) -> bool:
    """Returns whether an open seed is one directory's alone: this one's, unless it was replaced meanwhile."""
    return os.fstat(fd).st_nlink == 1


def wait_for_readers() -> None:
    """Wait until each process that reads the seed has looked whether another file stands in its place."""
    time.sleep(LOOK_SECONDS)


def _make_own(layout: Layout) -> bool:
    """Put a copy of the seed, with its marks, into its place. Returns False if it is this directory's alone by now."""
    lock = ProcessLock(layout.seed_lock, _LOCK_SECONDS, layout=layout)
    try:
        with lock, opened_seed(layout) as fd:
            if fd is None or has_one_name(fd):
                return False
            try:
                with staged_copy(layout, fd, os.fstat(fd).st_size):
                    layout.reach.rename(staged_seed(layout), layout.seed)
            except BaseException:
                with contextlib.suppress(OSError):
                    layout.reach.unlink(staged_seed(layout))
                raise
            return True
    finally:
        lock.close()


def staged_seed(layout: Layout) -> str:
    """Returns the path of the staged copy. It is fixed, so that the next copy replaces what a death left."""
    return f"{layout.seed}.new"


@contextmanager
def staged_copy(layout: Layout, source_fd: int, size_bytes: int) -> Iterator[int]:
    """Yields the descriptor of a staged copy of a bundle, of its first ``size_bytes``. Requires: the seed's lock."""
    with contextlib.suppress(FileNotFoundError):
        layout.reach.unlink(staged_seed(layout))
    made = Descriptor()
    layout.reach.create(staged_seed(layout), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, made)
    with made as fd:
        done = 0
        with naming(layout.seed):
            while part := os.pread(source_fd, min(size_bytes - done, _COPIED_AT_ONCE_BYTES), done):
                write_all(fd, part)
                done += len(part)
        yield fd


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


def withdraw(fd: int) -> bool:
    """Let an open seed serve nothing from now on: it is being replaced or removed.

    Returns whether its readers know by that. Those of one that is another directory's too are to be waited for once it
    is gone from here.
    """
    if not has_one_name(fd):
        return False
    for offset, chunk in _chunks(fd):
        changed = bytearray(chunk)
        for at in range(0, len(chunk), SLOT.size):
            if chunk[at : at + SLOT.size] != _EMPTY:
                changed[at + HIDDEN_AT] = WITHDRAWN
        os.pwrite(fd, changed, offset)
    return True


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
    if size_bytes > READ_ANYHOW_BYTES and is_hole(os.fstat(fd)):
        return None
    start = os.pread(fd, START_BYTES, 0)
    try:
        return read_end(start, os.pread(fd, END_BYTES, max(0, size_bytes - END_BYTES)), size_bytes)
    except ValueError:
        return None


def _served_at(fd: int, name: bytes) -> int:
    """Returns the offset of the slot of an entry that is served; 0 if there is none."""
    table = _table(fd)
    if table is None:
        return 0
    first = int.from_bytes(name[:8], "little")
    for probe in range(MOST_PROBES):
        offset = table.offset + (first + probe) % table.slots * SLOT.size
        slot = os.pread(fd, SLOT.size, offset)
        if slot[:32] == name:
            return 0 if slot[HIDDEN_AT] else offset
        if slot == _EMPTY:
            break
    return 0


def _chunks(fd: int) -> Iterator[tuple[int, bytes]]:
    """Yields the table in parts of whole slots: where each begins, and what it is."""
    table = _table(fd)
    for first in range(0, table.slots if table else 0, _AT_ONCE):
        if table:
            offset = table.offset + first * SLOT.size
            read = os.pread(fd, min(_AT_ONCE, table.slots - first) * SLOT.size, offset)
            yield offset, read[: len(read) // SLOT.size * SLOT.size]

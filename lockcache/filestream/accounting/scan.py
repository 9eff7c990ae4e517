"""Walking a shard: what is there, and what it adds up to.

Decides what counts as an entry (a regular file with an entry's name; all else is passed over) and how many bytes it
counts for: its payload plus its record file, if it has one. Relied on by eviction, recounting, ``len`` and opening, so
that all of them agree. Not promised: a consistent picture while writers go on; who needs one holds the shard's lock.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from lockcache.filestream.accounting.usage import Slot
from lockcache.filestream.disk import (
    Layout,
    QuarantinedName,
    StagedName,
    is_entry_file,
    last_use_ns,
    opened,
    parse_quarantined_name,
    parse_staged_name,
    refuse_symlink,
)

__all__ = [
    "ANY_TIME_NS",
    "Found",
    "bytes_beside",
    "count_shard",
    "measure_shard",
    "quarantined_files",
    "scan_records",
    "scan_shard",
    "staged_files",
]

# ELOOP: a symlink, which O_NOFOLLOW refuses (Linux says ENOTDIR where O_DIRECTORY is asked for too).
_NO_DIRECTORY: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW

#: Later than any entry was used.
ANY_TIME_NS: Final = 2**63


class Found(NamedTuple):
    """One entry on disk. Ordered by last use, oldest first, then by name."""

    last_use_ns: int
    name: str
    #: Payload and record file.
    size_bytes: int
    inode: int


def scan_shard(layout: Layout, shard: int, latest_ns: int = ANY_TIME_NS) -> Iterator[Found]:
    """The entries of one shard, in no order, but for those used after ``latest_ns``."""
    records = {file: status.st_size for file, status in _files(layout.record_shard(shard))}
    prefix = f"{shard:02x}"
    for file, status in _files(layout.entry_shard(shard), latest_ns):
        size = status.st_size + (records.get(file, 0) if records else 0)
        yield Found(last_use_ns(status), prefix + file, size, status.st_ino)


def count_shard(layout: Layout, shard: int) -> int:
    """Number of entries in one shard, without looking at each (their type is known from the directory)."""
    try:
        refuse_symlink(layout.entries)
        folder = opened(layout.entry_shard(shard), _OPEN_DIRECTORY)
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return 0
        raise
    with folder as fd, os.scandir(fd) as found:
        return sum(1 for file in found if is_entry_file(file.name) and file.is_file(follow_symlinks=False))


def scan_records(layout: Layout, shard: int) -> list[str]:
    """Names of the entries that have a record file in this shard."""
    return [f"{shard:02x}{file}" for file, _ in _files(layout.record_shard(shard))]


def measure_shard(layout: Layout, shard: int, beside_bytes: int | None = None) -> Slot:
    """Returns what the accounting should say of a shard: its entries, quarantined ones, and what staged files reserve.

    ``beside_bytes``: the latter two, from :func:`bytes_beside`, which lists their folders once for all shards.
    """
    # Not by scan_shard, which costs half as much again: the daemon measures all day.
    sizes = {file: status.st_size for file, status in _files(layout.entry_shard(shard))}
    records = sum(status.st_size for file, status in _files(layout.record_shard(shard)) if file in sizes)
    if beside_bytes is None:
        beside_bytes = bytes_beside(layout)[shard]
    return Slot(sum(sizes.values()) + records + beside_bytes, len(sizes))


def bytes_beside(layout: Layout) -> Counter[int]:
    """Returns by shard the bytes that count and are not entries: reserved by staged files, and in quarantine."""
    beside: Counter[int] = Counter()
    for staged in staged_files(layout):
        beside[staged.shard] += staged.size_bytes
    for name, size in quarantined_files(layout):
        beside[name.shard] += size
    return beside


def staged_files(layout: Layout) -> Iterator[StagedName]:
    """The staged writes of every process, by their names."""
    try:
        folder = opened(layout.tmp, _OPEN_DIRECTORY)
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return
        raise
    with folder as fd:
        files = os.listdir(fd)
    for file in files:
        staged = parse_staged_name(file)
        if staged is not None:
            yield staged


def quarantined_files(layout: Layout) -> Iterator[tuple[QuarantinedName, int]]:
    """The files in quarantine and their bytes, in no order."""
    try:
        folder = opened(layout.quarantine, _OPEN_DIRECTORY)
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return
        raise
    with folder as fd:
        for file in os.listdir(fd):
            name = parse_quarantined_name(file)
            if name is not None:
                try:
                    status = os.stat(file, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # dropped since the listing
                if not stat.S_ISDIR(status.st_mode):
                    # What is no file was no entry, and counts for nothing.
                    yield name, status.st_size if stat.S_ISREG(status.st_mode) else 0


def _files(path: str, latest_ns: int = ANY_TIME_NS) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files under entry names in one directory, last used by ``latest_ns``; none if it is no directory.

    Any other error is raised: a shard that cannot be read now (EIO, ESTALE, no descriptors left) is not an empty one,
    and a recount that took it for one would let the directory grow past its cap by as much.
    """
    try:
        refuse_symlink(os.path.dirname(path))
        folder = opened(path, _OPEN_DIRECTORY)
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return
        raise
    with folder as fd, os.scandir(fd) as found:
        for file in found:
            try:
                status = file.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # evicted or replaced since the listing
            # The cheapest question first: a sweep over a million entries asks it of each.
            if status.st_mtime_ns > latest_ns or status.st_atime_ns > latest_ns:
                continue
            if stat.S_ISREG(status.st_mode) and is_entry_file(file.name):
                yield file.name, status

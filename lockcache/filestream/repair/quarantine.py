# SPDX-License-Identifier: Apache-2.0
"""Quarantine: keeps corrupt entries, so that an operator can examine them.

Keeps invariant 1 (a hit is whole: what is here is served by nobody, and no payload is ever left without its record: the
payload moves first) and invariant 3 (hard cap): a quarantined entry goes on counting in its shard's slot, byte for
byte, so moving one changes no sum and no cap is exceeded by it. The cost for the cache is bounded: a sixteenth of the
cap, 256 MiB and 64 entries, whichever is least; the oldest go first. An evictor that finds no entry left empties the
quarantine.

Keeps invariant 5 (death is free): a death at any step leaves too much accounted for, never too little, and nothing that
a recount does not set right. Not promised: that a corrupt entry is kept. One that is too large, or for which the disk
has no room, is removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from itertools import groupby
from typing import Final, NamedTuple

from lockcache.filestream.accounting import ShardChange, Slot, StatePage, quarantined_files, space_of
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    DISK_FULL,
    Folder,
    Layout,
    QuarantinedName,
)
from lockcache.filestream.entry import remove_locked, remove_views_locked, unlink_counted

#: Enough to show a pattern; each takes inodes, a name to list at each recount, and a line in `ls`.
MOST_ENTRIES: Final = 64
MOST_BYTES: Final = 256 << 20
#: The divisor of the cap that gives the quarantine's share.
SHARE_DIVISOR: Final = 16


class Quarantined(NamedTuple):
    """One entry in quarantine."""

    name: QuarantinedName
    #: The bytes that payload and record file count for.
    size_bytes: int


def list_quarantine(layout: Layout) -> list[Quarantined]:
    """Returns what is in quarantine, oldest first."""
    files = sorted(quarantined_files(layout))
    return [
        Quarantined(name, sum(size for _, size in each))
        for name, each in groupby(files, key=lambda file: file[0]._replace(is_record=False))
    ]


def measure_quarantine(layout: Layout) -> Slot:
    """Returns the bytes and entries in quarantine."""
    found = list_quarantine(layout)
    return Slot(sum(each.size_bytes for each in found), len(found))


def make_place(directory: CacheDirectory, size_bytes: int) -> bool:
    """Drop the oldest so that so many bytes more are within bounds. Returns whether they can be.

    Requires: no lock. Others may come in between; then the bounds are exceeded until the next, the cap is not.
    """
    most = _most_bytes(directory.limit_bytes()) - size_bytes
    if most < 0:
        return False
    _trim(directory, most, MOST_ENTRIES - 1)
    return True


def trim_quarantine(directory: CacheDirectory, limit_bytes: int | None) -> None:
    """Drop the oldest until the rest is within the bounds that go with a cap. Requires: no lock."""
    _trim(directory, _most_bytes(limit_bytes), MOST_ENTRIES)


def empty_quarantine(directory: CacheDirectory, *, waits: bool = False) -> None:
    """Drop everything, except entries of shards that stay locked. Requires: no lock."""
    _trim(directory, 0, 0, waits=waits)
    with contextlib.suppress(OSError):  # not there; not empty: an operator's notes, or what came just now
        directory.layout.reach.rmdir(directory.layout.quarantine)


def quarantine_locked(directory: CacheDirectory, usage: StatePage, name: str, wrong: str) -> str | None:
    """Move an entry and its record into quarantine. Returns its path there; ``None`` if it was removed.

    An entry is removed if a full disk has no room for it, or it is an empty directory. Raises :class:`OSError` if
    neither can be done: something else is in the quarantine's place, or a directory that is not empty in the entry's.
    Then nothing is changed. Requires: shard lock, and :func:`make_place`.
    """
    path = directory.layout.entry(name)
    if stat.S_ISDIR(os.lstat(path).st_mode):
        directory.layout.reach.rmdir(path)  # moved, what is in it would be counted and bounded by nobody
        return None
    try:
        return _move_locked(directory.layout, usage, name, wrong)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        if not remove_locked(ShardChange(directory.layout, usage, int(name[:2], 16)), name):
            raise
        return None


def _move_locked(layout: Layout, usage: StatePage, name: str, wrong: str) -> str:
    moved = QuarantinedName(_now(), name, wrong)
    layout.reach.make_folder(layout.quarantine)
    # Held open, so that a file put in its place from here on changes nothing.
    with (
        ShardChange(layout, usage, moved.shard) as change,
        layout.reach.opened(layout.quarantine) as folder,
    ):
        with layout.reach.at(layout.entry_shard(moved.shard)) as entries:
            # Only what counted as an entry is counted out.
            counted = stat.S_ISREG(entries.stat(name[2:]).st_mode)
            # The payload first: a corrupt payload without a record would be served as one of cuda.core's.
            entries.rename(name[2:], folder, str(moved))
        change.entries = -int(counted)
        _move_record_locked(layout, usage, moved, folder)
        change.bytes = -remove_views_locked(layout, name).bytes
    return f"{layout.quarantine}/{moved}"


def _move_record_locked(layout: Layout, usage: StatePage, moved: QuarantinedName, folder: Folder) -> None:
    record = moved.entry[2:]
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        layout.reach.at(layout.record_shard(moved.shard)) as records,
    ):
        try:
            records.rename(record, folder, str(moved._replace(is_record=True)))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            # The disk is full. No file may stay that a later entry of this name would be taken together with.
            usage.add_locked(moved.shard, -unlink_counted(space_of(layout), records, record), 0)


def _trim(directory: CacheDirectory, most_bytes: int, most_entries: int, *, waits: bool = False) -> None:
    found = list_quarantine(directory.layout)
    held, entries = sum(each.size_bytes for each in found), len(found)
    for each in found:
        if held <= most_bytes and entries <= most_entries:
            return
        if _drop(directory, each.name, waits=waits):
            held -= each.size_bytes
            entries -= 1


def _drop(directory: CacheDirectory, name: QuarantinedName, *, waits: bool) -> bool:
    """Remove one, unless its shard is busy."""
    try:
        hold, usage, _ = directory.hold_shard(name.shard, None if waits else 0.0)
    except OSError:
        return False  # busy; or no inode or descriptor left for a lock file, which is as good as busy
    try:
        with directory.layout.reach.opened(directory.layout.quarantine) as folder:
            for each in (name, name._replace(is_record=True)):
                usage.add_locked(name.shard, -unlink_counted(directory.space, folder, str(each)), 0)
    except FileNotFoundError:
        return True  # another process was faster, and removed all of it
    finally:
        hold.release()
    return True


def _most_bytes(limit_bytes: int | None) -> int:
    return MOST_BYTES if limit_bytes is None else min(MOST_BYTES, max(0, limit_bytes) // SHARE_DIVISOR)


def _now() -> str:
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"

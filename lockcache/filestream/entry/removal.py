"""Removal of one entry, with its accounting, and the size that an entry on disk counts for.

Keeps invariant 2 (last write wins) for dropped writes, which remove the older value, and the remover's share of 3 (hard
cap): an entry is unlinked before its bytes are given back, so that a death in between leaves the accounting too high,
never too low. Not promised: that the lock is held (see :func:`remove_entry`); a recount corrects the accounting then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

from lockcache.filestream.accounting import UsagePage, folder_bytes
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    Layout,
    PlantedFolderError,
    below,
    refuse_symlink,
    revalidate,
    space_of,
    unlink_below,
)

__all__ = [
    "bytes_on_disk",
    "remove_empty_folders_locked",
    "remove_entry",
    "remove_locked",
    "revalidate_shard_locked",
    "unlink_entry_file",
]


_MISCONFIGURED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def remove_entry(directory: CacheDirectory, name: str, timeout_seconds: float) -> bool:
    """Remove an entry and give back its bytes. Whether there was one.

    Removing is what makes a dropped write safe (invariant 2, last write wins), so it does not depend on the lock: where
    that cannot be had in time, or no file be opened (no descriptors left), the entry goes all the same, and a recount
    corrects the accounting.
    """
    try:
        lock = directory.locks[int(name[:2], 16)]
        usage = directory.usage()
        hold = lock.hold(timeout_seconds)
    except OSError as error:
        if error.errno in _MISCONFIGURED:
            raise
        return _remove_without_lock(directory.layout, name)
    try:
        return remove_locked(directory.layout, usage, name)
    finally:
        hold.release()


def _remove_without_lock(layout: Layout, name: str) -> bool:
    shard = int(name[:2], 16)
    try:
        for folder in (layout.entries, layout.entry_shard(shard)):
            refuse_symlink(folder)
        removed = unlink_entry_file(layout, layout.entry(name))
        for folder in (layout.own, layout.records, layout.record_shard(shard)):
            refuse_symlink(folder)
        unlink_entry_file(layout, layout.record(name))
    except PlantedFolderError:
        # What is behind a symlink is not an entry, is served to nobody who looks, and is left alone.
        return False
    return removed


def remove_locked(layout: Layout, usage: UsagePage, name: str, has_records: bool = True) -> bool:
    """As :func:`remove_entry`. Requires: shard lock."""
    shard = int(name[:2], 16)
    revalidate_shard_locked(layout, shard)
    size = _bytes_of_entry(layout, name, has_records)
    folders = folder_bytes(layout, shard)
    if size is None or not unlink_entry_file(layout, layout.entry(name)):
        return False
    if has_records:
        unlink_entry_file(layout, layout.record(name))
    usage.add_locked(shard, folder_bytes(layout, shard) - folders - size, -1)
    return True


def revalidate_shard_locked(layout: Layout, shard: int) -> None:
    """See what other hosts did to a shard: what is accounted for here must be what is there. Requires: shard lock."""
    if layout.is_network:
        revalidate(layout, layout.entry_shard(shard))
        if os.access(layout.records, os.F_OK, effective_ids=True):
            revalidate(layout, layout.record_shard(shard))


def remove_empty_folders_locked(layout: Layout, shard: int) -> None:
    """Remove the folders of a shard that hold nothing.

    We make them again when we publish; a program of cuda.core's that is about to would fail. Requires: shard lock.
    """
    for path in (layout.entry_shard(shard), layout.record_shard(shard)):
        # Missing, or something is in it; or it is not to be had now, and counts as before.
        with contextlib.suppress(OSError), below(layout, path) as (folder_fd, name):
            os.rmdir(name, dir_fd=folder_fd)


def bytes_on_disk(layout: Layout, name: str, has_records: bool) -> int | None:
    """As :func:`_bytes_of_entry`, but ``None`` too where the disk gives no answer: for what is replaced anyway."""
    # Most puts are of a key that missed, and asking is cheaper than an exception (1.2 us).
    if not os.access(layout.entry(name), os.F_OK, effective_ids=True):
        return None
    return _bytes_of_entry(layout, name, has_records)


def _bytes_of_entry(layout: Layout, name: str, has_records: bool) -> int | None:
    """What an entry counts for, or ``None`` if there is none: nothing, or what :mod:`.accounting.scan` passes over too.

    Raises :class:`OSError` where that is not known: what should be removed must not be taken for absent, and served.
    """
    path = layout.entry(name)
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    of_file = space_of(layout).of_file
    size = of_file(status)
    if has_records:
        try:
            size += of_file(os.lstat(layout.record(name)))
        except (FileNotFoundError, NotADirectoryError):
            return size
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    return size


def unlink_entry_file(layout: Layout, path: str) -> bool:
    """Unlink a file of an entry. Returns whether there was one."""
    try:
        unlink_below(layout, path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False  # a planted directory is not an entry; what is behind a symlink is not the cache's
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False  # a symlink to itself for a folder
    return True

# SPDX-License-Identifier: Apache-2.0
"""Removal of one entry and of its views, with the accounting.

Keeps invariant 2 (last write wins) for dropped writes, which remove the older value, and the remover's share of 3 (hard
cap): an entry is unlinked before its bytes are given back, so that a death in between leaves the accounting too high,
never too low. Not promised: that the lock is held (see :func:`remove_entry`); the next reap corrects the accounting
then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from typing import Final, NamedTuple

from filelock import lock_descriptor

from lockcache.filestream.accounting import ShardChange, scan_views
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    FOLDER,
    WRITE,
    Descriptor,
    Folder,
    Layout,
    PlantedFolderError,
    Space,
    ViewName,
    give_up,
    remove_files,
    staged_path,
)
from lockcache.filestream.seed_marks import hide

_MISCONFIGURED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class Removed(NamedTuple):
    """The outcome of removing the views of an entry."""

    bytes: int
    #: Whether one is left, because a process uses it.
    is_in_use: bool


def remove_entry(directory: CacheDirectory, name: str, timeout_seconds: float, *, for_good: bool = False) -> bool:
    """Remove an entry and give back its bytes. Returns whether there was one.

    ``for_good``: from the seed too. Else what it has under that name is read from there.

    Removal is what makes a dropped write safe (invariant 2, last write wins), so it does not depend on the lock: if
    that is not free in time, or no file can be opened (no descriptors left), the entry is removed anyway, and the next
    reap corrects the accounting.
    """
    layout, shard = directory.layout, int(name[:2], 16)
    # First: else it is read from there once the entry is gone.
    was_in_seed = for_good and os.access(layout.seed, os.F_OK, effective_ids=True) and hide(layout, name)
    try:
        hold, usage, known = directory.hold_shard(shard, time.monotonic() + timeout_seconds)
    except OSError as error:
        if error.errno in _MISCONFIGURED:
            raise
        return _remove_without_lock(layout, name) or was_in_seed
    try:
        return remove_locked(ShardChange(layout, usage, shard, known), name) or was_in_seed
    finally:
        hold.release()


def _remove_without_lock(layout: Layout, name: str) -> bool:
    shard = int(name[:2], 16)
    try:
        layout.reach.refuse_symlinks(layout.entries, layout.entry_shard(shard))
        removed = layout.reach.remove(layout.entry(name))
        layout.reach.refuse_symlinks(layout.own, layout.records, layout.record_shard(shard))
        layout.reach.remove(layout.record(name))
    except PlantedFolderError:
        # A file behind a symlink is not an entry; it is never served, and is left alone.
        return False
    if removed:
        leave_to_reap(layout, shard)
    return removed


def leave_to_reap(layout: Layout, shard: int) -> None:
    """Leave an empty staged file that this process is done with: the next reap recounts its shard."""
    path, file = staged_path(layout, shard, 0), Descriptor()
    with contextlib.suppress(OSError):  # too much is accounted for then, until a recount
        layout.reach.create(path, WRITE, file)
        give_up(os.path.basename(path))
    file.close()


def remove_locked(change: ShardChange, name: str) -> bool:
    """Remove an entry of the shard that is changed, with its record and views. Returns whether there was one.

    Requires: shard lock.
    """
    layout, path = change.layout, f"{change.entries_folder}/{name[2:]}"
    size = change.bytes_of(name, path)
    if size is None:
        return False
    with change:
        if not layout.reach.remove(path):
            return False
        if change.has_records:
            layout.reach.remove(layout.record(name))
            size += remove_views_locked(layout, name).bytes
        change.bytes, change.entries = -size, -1
    return True


def remove_views_locked(layout: Layout, name: str) -> Removed:
    """Remove the views of an entry that nobody uses. Requires: shard lock. The caller accounts for the bytes."""
    return _remove_views_locked(layout, [view for view in scan_views(layout, int(name[:2], 16)) if view.entry == name])


def remove_orphan_views_locked(layout: Layout, shard: int) -> Removed:
    """Remove the views that nobody uses of entries that are gone. Requires: shard lock. The caller accounts for them.

    Such a view was in use when its entry was removed. It counts until it is removed, and no entry is evicted for it.
    """
    return _remove_views_locked(layout, orphan_views(layout, shard))


def orphan_views(layout: Layout, shard: int) -> list[ViewName]:
    """Returns the views of entries that are gone."""
    return [view for view in scan_views(layout, shard) if not os.path.lexists(layout.entry(view.entry))]


def _remove_views_locked(layout: Layout, views: list[ViewName]) -> Removed:
    removed_bytes, is_in_use = 0, False
    for view in views:
        try:
            is_gone = _remove_view_locked(layout, view)
        except OSError:
            continue  # it cannot be removed now: it counts until a later call removes it
        removed_bytes += view.size_bytes if is_gone else 0
        is_in_use |= not is_gone
    return Removed(removed_bytes, is_in_use)


def _remove_view_locked(layout: Layout, view: ViewName) -> bool:
    """Remove a view unless it is used. Returns whether it is gone. Raises :class:`OSError` if it cannot be removed."""
    path = layout.view(view)
    try:
        folder = layout.reach.open(path, FOLDER)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        layout.reach.unlink(path)  # not a view, under the name of one
        return True
    with folder as fd:
        with contextlib.suppress(OSError):  # locks do not work here: nobody could hold it
            if not lock_descriptor(fd, blocking=False):
                return False
        remove_files(fd)
        # Still locked: a process that opens the view from here on finds it empty, and makes another.
        layout.reach.rmdir(path)
    return True


def remove_empty_folders_locked(layout: Layout, shard: int) -> None:
    """Remove the folders of a shard that hold nothing.

    We make them again when we publish; a program of cuda.core's that is about to would fail. Requires: shard lock.
    """
    # The folder of views first: without a folder of records no one looks for it.
    for path in (layout.entry_shard(shard), layout.view_shard(shard), layout.record_shard(shard)):
        if path == layout.record_shard(shard) and os.path.lexists(layout.view_shard(shard)):
            break
        # Missing, or not empty; or not accessible now, and counted as before.
        with contextlib.suppress(OSError):
            layout.reach.rmdir(path)


def unlink_counted(space: Space, folder: Folder, file: str) -> int:
    """Unlink a file in a folder. Returns the bytes that it counted for; 0 where another process was faster."""
    try:
        status = folder.stat(file)
        folder.unlink(file)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return 0  # gone; or somebody's directory, which is left alone
    return space.of_file(status) if stat.S_ISREG(status.st_mode) else 0

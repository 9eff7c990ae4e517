# SPDX-License-Identifier: Apache-2.0
"""Views: the files of an entry as files in a folder, for programs that open paths. Made, checked, removed.

A view is ``lockcache/views/SHARD/NAME.DIGEST.BYTES/``, of the digest of the files' names and bytes: another version of
the entry has another view, so no path ever leads to two. It is staged in ``tmp/`` under a name that says whose it is
and what it reserves, and appears by one rename under the shard's lock.

Keeps invariant 1 (a hit is whole): a view is returned after each of its files was compared with the entry, or just
written from it, and its user holds a lock on its folder, which evictors respect; so it stays whole, except for what
others do to its files. Keeps invariant 3 (hard cap): a view counts for what its name says, which is reserved before a
byte of it is written. Invariant 5 (death is free): that lock ends with its process, and a view that is half made or
half removed is reaped or made again. Not promised: views of entries that foreign programs removed; a recount removes
those.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from typing import Final

from xxhash import xxh3_128

from lockcache.filestream.accounting import ShardChange
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    FOLDER,
    READ,
    WRITE,
    Descriptor,
    KeptDescriptor,
    Layout,
    Space,
    ViewName,
    opened,
    remove_files,
    write_all,
)
from lockcache.filestream.entry.locate import find_records
from lockcache.filestream.entry.removal import remove_views_locked
from lockcache.filestream.entry.reservation import RESERVATIONS

# What a name takes in a folder of ext4 in addition to its bytes.
_NAME_BYTES: Final = 11


class ViewPath(str):
    """The path of a view. While this object lives, no eviction removes the view; a plain copy of it is only a path."""

    #: The names of the files in it.
    names: tuple[str, ...]
    _folder: KeptDescriptor

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # for another process, which does not hold it


def name_view(space: Space, entry: str, files: Mapping[str, bytes]) -> ViewName:
    """Returns the name of the view of these files of an entry."""
    digest = xxh3_128()
    for name, content in files.items():
        digest.update(b"%s\0%d\0" % (name.encode(), len(content)))
        digest.update(content)
    return ViewName(entry, digest.hexdigest(), _view_bytes(space, files))


def _view_bytes(space: Space, files: Mapping[str, bytes]) -> int:
    """Returns the bytes that a view counts for: its files, and at most what their folder takes (exactly, on ext4)."""
    taken = sum(space.of_bytes(len(content)) for content in files.values()) + space.inode_bytes
    return taken + space.of_folder_of(sum(len(name.encode()) + _NAME_BYTES for name in files))


def find_view(layout: Layout, view: ViewName, files: Mapping[str, bytes]) -> ViewPath | None:
    """Returns the view, held, if it exists and each of its files equals the one in ``files``."""
    try:
        path = _held(layout, view, files)
        is_whole = path is not None and all(_is_file(path._folder.number, *file) for file in files.items())
    except OSError:
        return None
    return path if is_whole else None


def _held(layout: Layout, view: ViewName, files: Mapping[str, bytes]) -> ViewPath | None:
    """Returns the view, held; ``None`` if a process is removing it. Raises :class:`OSError`."""
    path = ViewPath(layout.view(view))
    path.names, path._folder = tuple(files), (folder := KeptDescriptor())
    layout.reach.open(path, FOLDER, folder)
    folder.is_own(os.fstat(folder.number))  # by which it is known again: a program may close all descriptors meanwhile
    return path if _hold(path._folder.number) else None


def _hold(fd: int) -> bool:
    """Keep evictors away from a view; ``False`` if one is removing it. Where locks do not work, nobody is kept away."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_file(folder_fd: int, name: str, content: bytes) -> bool:
    with opened(name, READ, dir_fd=folder_fd) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != len(content):
            return False
        at = 0
        while at < len(content):
            part = os.read(fd, len(content) - at)  # stops at 2 GiB
            if not part or part != content[at : at + len(part)]:
                return False
            at += len(part)
        return True


class StagedView:
    """A reserved, staged view. Ends by :meth:`place` or :meth:`abandon`."""

    __slots__ = ("_layout", "reservation")

    def __init__(self, directory: CacheDirectory, name: str, size_bytes: int, deadline: float | None = None) -> None:
        """Stage nothing yet. No lock is waited for past ``deadline`` (monotonic seconds; default: one lock timeout)."""
        self._layout = directory.layout
        kind = RESERVATIONS[directory.layout.is_network]
        self.reservation = kind(directory, int(name[:2], 16), size_bytes, deadline)

    def reserve(self) -> None:
        """Make the staged folder and reserve the view's size, in one critical section."""
        self.reservation.take(self._make)

    def _make(self, path: str) -> None:
        self._layout.reach.make_folder(path)

    def abandon(self) -> None:
        """Give everything back. Does nothing after :meth:`place`. Raises nothing: an error is being handled."""
        self.reservation.give_back(self._remove)

    def _remove(self, path: str) -> bool:
        try:
            with self._layout.reach.open(path, FOLDER) as fd:
                remove_files(fd)
            self._layout.reach.rmdir(path)
        except FileNotFoundError:
            return False
        return True

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Write the files. Requires: the reservation, and that the sum with it is under the cap."""
        for name, content in files.items():
            file = Descriptor()
            self._layout.reach.create(f"{self.reservation.path}/{name}", WRITE, file)
            with file as fd:
                write_all(fd, content)
                file.end_writing()

    def place(self, view: ViewName, files: Mapping[str, bytes], blob: bytes) -> ViewPath | None:
        """Put it in its place, held, unless the entry is not the one of the record ``blob`` any more.

        If another process was faster, what it placed is the view, and this one is to be abandoned.
        """
        layout = self._layout
        hold = self.reservation.hold()
        try:
            reserved = self.reservation
            change = ShardChange(layout, reserved.account, reserved.shard, reserved.known)
            if not _is_stored(layout, view.entry, blob):
                return None
            # Rarely, another process was faster. Otherwise nothing is compared, which would take long under this lock.
            found = find_view(layout, view, files) if os.path.lexists(layout.view(view)) else None
            if found is None:
                self._place_locked(change, view)
                found = _held(layout, view, files)
            return found
        finally:
            hold.release()

    def _place_locked(self, change: ShardChange, view: ViewName) -> None:
        layout, reserved = self._layout, self.reservation
        change.make_records()
        with change:
            _, records, views = layout.shard_folders(reserved.shard)
            for folder in (layout.records, records, layout.views, views):
                layout.reach.make_folder(folder)
            # Views of older versions, and this one if it is damaged.
            change.bytes = -remove_views_locked(layout, view.entry).bytes
            reserved.is_standing = False
            try:
                layout.reach.rename(reserved.path, layout.view(view))
            except OSError:
                reserved.is_standing = True
                raise
            reserved.path = ""
            change.bytes += view.size_bytes - reserved.size_bytes


def _is_stored(layout: Layout, name: str, blob: bytes) -> bool:
    """Returns whether an entry has this record. Requires: shard lock."""
    try:
        with layout.reach.open(layout.entry(name), READ) as fd:
            return blob in find_records(layout, fd, name)
    except OSError:
        return False

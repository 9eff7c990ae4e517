# SPDX-License-Identifier: Apache-2.0
"""lockcache's folder in another program's directory: ``lockcache/``, which holds all of lockcache's own files there.

Decides where they are, and that such a directory is refused where lockcache's own would be: if somebody else owns it or
may write to it. The name of the layout is kept in ``lockcache/layout``, so that a directory is still recognized after
all entries were evicted, and one that an operator named is never taken for another.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final

from lockcache.filestream.disk import (
    DISK_FULL,
    READ,
    make_private_folder,
    open_folder,
    present_ns,
    replace_file,
    restate,
)
from lockcache.integrations.pyptx_directory import guest_layout
from lockcache.integrations.staged import reap_staged, staged_bytes
from lockcache.layouts.openat import NOT_A_FOLDER, Descent, bytes_below, folder, open_root, status_in
from lockcache.lowlevel import Found, Layout, check_directory

_LONGEST_NAME: Final = 64
_OWN: Final = "lockcache"
_NAME: Final = "layout"
_CONDEMNED: Final = "condemned"


class GuestFiles:
    """Another program's directory, open, with our own folder in it: what all such layouts have. For one thread.

    A layout adds how its entries are found and removed.
    """

    #: The name that is kept in ``lockcache/layout``.
    layout_name: str
    evicting_threads = 1

    def __init__(self, root: str, settle_seconds: float) -> None:
        """Open ``root``, made (mode 0700) if it is missing. Raises as :func:`open_guest`."""
        self.root = root
        self.layout: Layout = open_guest(root)
        self.settle_seconds = settle_seconds
        self._root_fd = open_root(root)
        self._watched: list[str] = [""]

    @property
    def is_pending(self) -> bool:
        """Whether evicted entries are still on the disk: never here, since eviction removes them at once."""
        return False

    def prepare(self) -> None:
        """Make what is missing of our own directories."""
        self.layout.reach.make_folder(self.layout.own)
        self.layout.reach.make_folder(self.layout.tmp)
        leave_name(self.layout, self.layout_name)

    def glance(self) -> object:
        """Returns a value that differs after a change, as far as that shows without a walk."""
        with Descent(self._root_fd) as descent:
            return [_mtime_ns(descent.go(path)) for path in sorted(self._watched)]

    def staged_bytes(self) -> int:
        """Returns the bytes that lockcache itself is writing, and of what it could not remove yet.

        Raises :class:`OSError`.
        """
        with self._condemned_if_there() as fd:
            return staged_bytes(self.layout) + (bytes_below(fd) if fd is not None else 0)

    def finish(self) -> bool:
        """Go on with evictions. Returns whether there was anything to do."""
        return False

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead daemons left staged, and among ``names`` what long dead compilers left."""
        reap_staged(self.layout)

    def restate(self, found: Found) -> None:
        """Date the files of an entry to now whose use is dated to come."""
        path, name = os.path.split(found.name)
        with folder(self._root_fd, path) as fd:
            restate_all(self.layout, fd, self._names_of(fd, name) if fd is not None else ())
        with folder(self._root_fd, found.name) as fd:
            restate_all(self.layout, fd, os.listdir(fd) if fd is not None else ())

    def _names_of(self, folder_fd: int, name: str) -> Iterable[str]:
        """Returns the names of an entry's files, if they are in an open folder of others."""
        return (name,)

    def _has_rested(self, changed_ns: int, seconds: float) -> bool:
        """Returns whether the last change was so long ago, or a clock was set back since: then it would never be."""
        return abs(present_ns(self.layout.tmp) - changed_ns) >= seconds * 1e9

    def close(self) -> None:
        """Close the root."""
        fd, self._root_fd = self._root_fd, -1
        if fd >= 0:
            os.close(fd)

    def _make_condemned(self) -> None:
        self.layout.reach.make_folder(f"{self.layout.own}/{_CONDEMNED}")

    def _condemned_if_there(self) -> AbstractContextManager[int | None]:
        return folder(self._root_fd, f"{_OWN}/{_CONDEMNED}")

    def _condemned(self) -> AbstractContextManager[int]:
        """Returns the open folder of what was condemned, for a ``with`` block. Raises :class:`OSError`."""
        return open_folder(self.root, _OWN, _CONDEMNED)


def _mtime_ns(folder_fd: int | None) -> int:
    return 0 if folder_fd is None else os.fstat(folder_fd).st_mtime_ns


def restate_all(layout: Layout, folder_fd: int | None, names: Iterable[str]) -> None:
    """Date the files of these names in an open folder to now, if their use is dated to come."""
    if folder_fd is None:
        return
    for name in names:
        status = status_in(folder_fd, name)
        if status is not None:
            restate(layout.tmp, folder_fd, name, status, keeps_order=True)


def open_guest(root: str) -> Layout:
    """Returns lockcache's paths in ``root``, which is made (mode 0700) if it is missing.

    Raises :class:`UnsafeCacheDirError` if somebody else owns it or may write to it, or the plain :class:`OSError`.
    """
    layout = guest_layout(root)
    if not os.path.isdir(root):
        os.makedirs(os.path.dirname(root), exist_ok=True)
        make_private_folder(root)
    check_directory(layout, False)
    return layout


def read_name(root: str) -> str:
    """Returns the layout under which ``root`` was kept before; empty if it never was, or if that is not known."""
    try:
        # Before anything was checked: the directory may turn out to be one that others write to.
        with open_folder(root, _OWN) as folder_fd:
            status = status_in(folder_fd, _NAME)
            if status is None or not stat.S_ISREG(status.st_mode):
                return ""
            fd = os.open(_NAME, READ, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in NOT_A_FOLDER:
            return ""
        raise
    try:
        return os.read(fd, _LONGEST_NAME).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def leave_name(layout: Layout, name: str) -> None:
    """Leave the name for the next start. Requires: ``lockcache/`` and its folder for staged files are there."""
    if read_name(layout.root) == name:
        return
    try:
        replace_file(layout, _path(layout), name.encode("ascii") + b"\n", fsync=False)
    except OSError as error:
        # A full disk needs sweeps most of all; the name can wait.
        if error.errno not in DISK_FULL:
            raise


def _path(layout: Layout) -> str:
    return os.path.join(layout.own, _NAME)

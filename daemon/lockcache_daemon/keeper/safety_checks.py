# SPDX-License-Identifier: Apache-2.0
"""Checks that a directory is still as safe as when it was opened, and on the same mount.

Keeps the promise of :mod:`lockcache.filestream.disk.permissions` over time: a daemon runs for months, and a directory
that somebody opens to others meanwhile (chmod, chown) is not swept, counted or verified until that is fixed. The check
compares the modes and owners of the root and of the folders that an opening checks: five stats a tick, 10 us.

A directory that is deleted is made again, because programs make it again too and need the cap. A directory whose file
system was unmounted (``umount -l``: an ordinary umount is refused while we have files open there) looks the same, and
must not be made again: below a mount point is another disk, most often the system's. The mount table distinguishes the
two cases: the path of a deleted directory is on the same mount as before.

Not promised: a check of each shard's folder, which others cannot reach below a private root; nor that nothing was
planted between two checks. Every entry is verified before it is served, as always.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from lockcache.filestream.disk import mount_of
from lockcache.lowlevel import Layout

_Look = tuple[tuple[int, int, int, int] | None, ...]


class SafetyCheck:
    """Checks that an open directory is still safe. ``refuse`` raises the error that opening it now would raise."""

    def __init__(self, layout: Layout, refuse: Callable[[], object]) -> None:
        self._layout = layout
        self._refuse = refuse
        self._seen: _Look = ()
        #: Whether the directory was safe at the last check.
        self.is_safe = True

    def check(self) -> None:
        """Raises the error of ``refuse``, as long as ``refuse`` raises one."""
        look = self._look()
        if look == self._seen:
            return
        self.is_safe = False
        self._refuse()
        self.is_safe, self._seen = True, look

    def _look(self) -> _Look:
        # The root may be reached through a symlink.
        root, *below = self._layout.directories()
        return (_identity_of(root, follow_symlinks=True), *(_identity_of(path) for path in below))


class MountCheck:
    """Checks that the mount that a directory was opened on is still there."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._point = ""

    def remember(self) -> None:
        """Remember the mount of the directory, which is open now."""
        mount = mount_of(self._root)
        self._point = "" if mount is None else mount.point

    def check(self) -> None:
        """Raises :class:`OSError` as long as nothing is mounted where the directory was: it must not be made there."""
        mount = mount_of(self._root) if self._point else None
        # Any file system that was mounted there since will do: a file server that came back may have another number.
        if mount is not None and len(mount.point) < len(self._point) and not self._leads_elsewhere():
            why = f"was unmounted from {self._point} and is not made below it; mount it again, or restart the daemon"
            raise OSError(errno.ENODEV, why, self._root)

    def _leads_elsewhere(self) -> bool:
        """Returns whether the path now leads through a symlink to another directory, which need not be made."""
        real = os.path.realpath(self._root)
        return os.path.isdir(real) and os.path.commonpath([real, self._point]) != self._point


def _identity_of(path: str, *, follow_symlinks: bool = False) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=follow_symlinks)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mode, status.st_uid, status.st_gid, status.st_ino

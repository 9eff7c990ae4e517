"""Checks that a directory is still what was opened: as safe as then, and where it was mounted.

Keeps the promise of :mod:`lockcache.filestream.disk.permissions` over time: a daemon runs for months, and a directory
that somebody opens to others meanwhile (chmod, chown) is not swept, counted or verified until that is fixed. What is
looked at is the root and the folders that are checked at an opening, by their modes and owners: five stats a tick, 10
us.

One that is deleted is made again, because programs make it again too and need the cap. One whose file system was
unmounted underneath (``umount -l``: an ordinary one is refused while we have files open there) looks the same from
inside, and must not be: what is below a mount point is another disk, most often the system's. The two are distinguished
by the mount table: on a deleted directory's path the same mount is on top as before.

Not promised: that a shard's own folder is looked at, which is out of others' reach below a private root; nor that
nothing was planted between two looks. What is there is verified before it is served, as always.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from lockcache.filestream.disk import mount_of
from lockcache.lowlevel import Layout

_Look = tuple[tuple[int, int, int, int] | None, ...]


class SafetyCheck:
    """One directory that is open. ``refuse`` raises what opening it now would raise."""

    def __init__(self, layout: Layout, refuse: Callable[[], object]) -> None:
        self._layout = layout
        self._refuse = refuse
        self._seen: _Look = ()
        #: Whether it was safe when it was looked at last.
        self.is_safe = True

    def check(self) -> None:
        """Raises what ``refuse`` does, as long as it does."""
        look = self._look()
        if look == self._seen:
            return
        self.is_safe = False
        self._refuse()
        self.is_safe, self._seen = True, look

    def _look(self) -> _Look:
        # The root may be reached through a symlink.
        root, *below = self._layout.directories()
        return (_of(root, follow_symlinks=True), *(_of(path) for path in below))


class MountCheck:
    """The mount that a directory was on when it was opened last."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._point = ""

    def remember(self) -> None:
        """It is open now."""
        mount = mount_of(self._root)
        self._point = "" if mount is None else mount.point

    def check(self) -> None:
        """Raises :class:`OSError` as long as nothing is mounted where the directory was, so that it may not be made."""
        mount = mount_of(self._root) if self._point else None
        # Whatever was mounted there since will do: a file server that came back may have another number.
        if mount is not None and len(mount.point) < len(self._point) and not self._leads_elsewhere():
            why = f"was unmounted from {self._point} and is not made below it; mount it again, or restart the daemon"
            raise OSError(errno.ENODEV, why, self._root)

    def _leads_elsewhere(self) -> bool:
        """Whether somebody let a symlink on the way lead to another directory, which need not be made."""
        real = os.path.realpath(self._root)
        return os.path.isdir(real) and os.path.commonpath([real, self._point]) != self._point


def _of(path: str, *, follow_symlinks: bool = False) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=follow_symlinks)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_mode, status.st_uid, status.st_gid, status.st_ino

# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of this process: gone when it ends, or when another one makes its own after it was killed.

Keeps invariant 5 (death is free): the name of the folder in ``$TMPDIR`` says whose it is, so what a killed process left
is recognised there. Only folders of the same user are removed, whatever others have planted under such a name. A forked
child has none of its parent's. Not promised: that a child which ends by ``os._exit`` removes what it still has; the
next process does.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
from typing import Final

from lockcache.filestream.disk import Owner, myself
from lockcache.fork import after_fork_in_child
from lockcache.integrations.staged import COMPILING_SECONDS, was_left_by

__all__ = ["TemporaryFolders"]

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_OWNER: Final = re.compile(r"[a-z]+-[a-z0-9_]+\.([0-9a-f]{16})\.([0-9]{1,10})\.([0-9]{1,12})", re.ASCII)


class TemporaryFolders:
    """Folders of mode 0700, in one for each process, which is there as long as any of them is."""

    def __init__(self, name: str) -> None:
        """``name``: letters, which say what the folders are for."""
        self._prefix = f"lockcache-{name}-"
        self._after_fork_in_child()
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._base = ""
        self._has_begun = False

    def make(self) -> str:
        """Make a folder and return its path. Raises :class:`OSError`."""
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                self._begin()
            if not _is_own(self._base):  # or what cleans $TMPDIR up has removed it
                owner = myself()
                suffix = f".{owner.host}.{owner.pid}.{owner.start_ticks}"
                self._base = tempfile.mkdtemp(suffix, self._prefix)
            return tempfile.mkdtemp(dir=self._base)

    def has(self, folder: str) -> bool:
        """Returns whether this process made the folder, and not a process from which it was forked."""
        return bool(self._base) and os.path.dirname(folder) == self._base

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it, if this process made it."""
        with self._lock:
            if self.has(folder):
                shutil.rmtree(folder, ignore_errors=True)
                with contextlib.suppress(OSError):  # others are in it
                    os.rmdir(self._base)
                    self._base = ""

    def _remove_all(self) -> None:
        with self._lock:
            if self._base:
                shutil.rmtree(self._base, ignore_errors=True)
                self._base = ""

    def _begin(self) -> None:
        """Arrange for the end of this process, and reap what killed ones left."""
        atexit.register(self._remove_all)
        if "multiprocessing.util" in sys.modules:  # its children run no other handlers
            sys.modules["multiprocessing.util"].Finalize(None, self._remove_all, exitpriority=-1)
        with contextlib.suppress(OSError):
            self._reap(tempfile.gettempdir())

    def _reap(self, root: str) -> None:
        fd = os.open(root, _OPEN_FOLDER)
        try:
            for name in os.listdir(fd):
                with contextlib.suppress(OSError):
                    if name.startswith(self._prefix) and _is_left(fd, name):
                        shutil.rmtree(f"{root}/{name}", ignore_errors=True)
        finally:
            os.close(fd)


def _is_left(root_fd: int, name: str) -> bool:
    match = _OWNER.fullmatch(name.removeprefix("lockcache-"))
    if match is None or not _is_own(name, root_fd):
        return False
    return was_left_by(Owner(match[1], int(match[2]), int(match[3])), root_fd, name, COMPILING_SECONDS)


def _is_own(folder: str, root_fd: int | None = None) -> bool:
    """Returns whether a folder is there and is this user's: others may plant anything under a name that they saw."""
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(folder, dir_fd=root_fd, follow_symlinks=False)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False

# SPDX-License-Identifier: Apache-2.0
"""Watch of the folders that entries appear in: which of them were renamed to their place.

Decides which folders appeared whole. A rename is the only proof of that there is from outside: a folder that is written
in its place looks the same between two of its files as at the end. What was renamed while nobody watched counts as
written in its place. In a folder that was just made, and not watched yet when another one was renamed into it, times
prove the rename: it changes the inode of the folder alone, after all that was done in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import struct
from collections.abc import Iterator
from typing import Final

from lockcache.integrations.kept_folders.contents import MOST_FILES, RefusedError, opened_folder, walk
from lockcache.integrations.staged import is_staged

__all__ = ["Watch"]

_HEAD: Final = struct.Struct("iIII")
_LARGEST_READ_BYTES: Final = 1 << 16
_NONBLOCK: Final = os.O_NONBLOCK | os.O_CLOEXEC
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _ONLY_FOLDERS, _IS_FOLDER = 0x4000, 0x8000, 0x01000000, 0x40000000


class Watch:
    """The folders that appeared whole since they are watched. Where the kernel gives no watch there are none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        #: To be waited for; -1 without one.
        self.fd: int = self._libc.inotify_init1(_NONBLOCK)
        #: Paths of the folders that were renamed to where they are.
        self.moved: set[str] = set()
        #: Whether folders were made or moved since this was last set to ``False``.
        self.has_news = False
        self._paths: dict[int, str] = {}
        self._laid: set[int] = set()  # the renames of what was laid down, which another guard stored

    def add(self, folder_fd: int, path: str, *, is_new: bool = False) -> None:
        """Watch an open folder, for folders that appear in it; their paths begin with ``path``. Adding twice is one.

        ``is_new``: it was made a moment ago, so folders may have been renamed into it before it could be watched.
        """
        if self.fd >= 0:
            name = os.fsencode(f"/proc/self/fd/{folder_fd}/.")
            number = self._libc.inotify_add_watch(
                self.fd, name, _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_FOLDERS
            )
            if is_new and number >= 0 and number not in self._paths:
                self.moved.update(path + name for name in _renamed_in(folder_fd))
            if number >= 0:
                self._paths[number] = path

    def read(self) -> None:
        """Take what happened since the last time. Does not wait."""
        with contextlib.suppress(BlockingIOError):
            while self.fd >= 0 and (events := os.read(self.fd, _LARGEST_READ_BYTES)):
                self._take(events)

    def _take(self, events: bytes) -> None:
        while events:
            number, mask, rename, length = _HEAD.unpack_from(events)
            name = events[_HEAD.size : _HEAD.size + length].rstrip(b"\0")
            events = events[_HEAD.size + length :]
            if mask & _OVERFLOW:
                self.has_news = True
            elif mask & _IGNORED:
                self._paths.pop(number, None)
            elif mask & _IS_FOLDER and number in self._paths:
                self.has_news = True
                self._take_one(mask, rename, self._paths[number], os.fsdecode(name))

    def _take_one(self, mask: int, rename: int, above: str, name: str) -> None:
        if mask & _MOVED_FROM and is_staged(name):
            self._laid = {rename}  # the kernel states both halves of a rename one after the other
        elif mask & _MOVED_TO and rename not in self._laid:
            self.moved.add(above + name)
        else:
            self.moved.discard(above + name)

    def close(self) -> None:
        """Watch nothing any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _renamed_in(folder_fd: int) -> Iterator[str]:
    """Yields the names of the folders in an open one whose times say that they were renamed to their place."""
    with contextlib.suppress(OSError), os.scandir(folder_fd) as entries:
        for name in [each.name for each in entries if each.is_dir(follow_symlinks=False)]:
            with contextlib.suppress(OSError, RefusedError), opened_folder(folder_fd, name) as inner_fd:
                if _was_renamed(inner_fd):
                    yield name


def _was_renamed(folder_fd: int) -> bool:
    """Returns whether a folder has changed after its last entry was made or removed, and after all that is in it."""
    status = os.stat(folder_fd)
    changes = [each.st_ctime_ns for _, _, each in itertools.islice(walk(folder_fd), MOST_FILES + 1)]
    return 0 < len(changes) <= MOST_FILES and status.st_ctime_ns > max(status.st_mtime_ns, *changes)

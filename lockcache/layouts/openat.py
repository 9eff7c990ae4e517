"""Reaching files below a root that is held open, part by part, so that nothing outside it is ever looked at or removed.

Keeps one promise for directories whose writers we do not know: a directory that is swapped for a symlink between a look
and a removal is not followed, and another file system mounted below is not entered. Every step is an ``openat`` of one
name with ``O_NOFOLLOW`` on the descriptor of the last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from lockcache.filestream.disk import NOATIME

#: The errors of opening a folder that does not exist (any more): also for a symlink, where Linux reports ENOTDIR or
#: ELOOP.
NOT_A_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_root(path: str) -> int:
    """Open the root. Only the root may be reached through a symlink: that is its owner's choice."""
    return os.open(path, _FLAGS)


@contextlib.contextmanager
def opened_root(path: str) -> Iterator[int]:
    """Open a root like :func:`open_root`, for a ``with`` block."""
    fd = open_root(path)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def folder(parent_fd: int, path: str) -> Iterator[int | None]:
    """Open the folder ``path`` (parts joined by ``/``; empty: the parent itself), for a ``with`` block.

    ``None`` where one of the parts is missing, no folder, a symlink, or on another file system. Raises
    :class:`OSError` for what cannot be read.
    """
    device = os.fstat(parent_fd).st_dev
    fd = os.dup(parent_fd)
    try:
        for part in path.split("/") if path else ():
            below = _open_part(fd, part)
            if below is None:
                yield None
                return
            os.close(fd)
            fd = below
            if os.fstat(fd).st_dev != device:
                yield None
                return
        yield fd
    finally:
        os.close(fd)


def status_in(folder_fd: int, name: str) -> os.stat_result | None:
    """Returns the status of ``name`` itself, also of a symlink; ``None`` if it is gone."""
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def read_in(folder_fd: int, name: str, inode: int, largest_bytes: int) -> bytes | None:
    """Returns the content of a file that was found with this inode; ``None`` if it is gone, replaced or larger.

    No symlink is followed, and nothing but a plain file is read.
    """
    content = _read_in(folder_fd, name, inode, largest_bytes + 1, _FILE)
    return content if content is not None and len(content) <= largest_bytes else None


def read_start_in(folder_fd: int, name: str, inode: int, most_bytes: int) -> bytes | None:
    """Returns the first bytes of a file like :func:`read_in`; ``None`` too where reading would count as a use."""
    return _read_in(folder_fd, name, inode, most_bytes, _FILE | NOATIME)


def _read_in(folder_fd: int, name: str, inode: int, most_bytes: int, flags: int) -> bytes | None:
    try:
        fd = os.open(name, flags, dir_fd=folder_fd)
    except OSError:
        return None
    status = os.fstat(fd)
    if status.st_ino != inode or not stat.S_ISREG(status.st_mode):
        os.close(fd)
        return None
    with open(fd, "rb") as file:
        return file.read(most_bytes)


def unlink_in(folder_fd: int, name: str) -> None:
    """Remove a file, if it is still there. Raises :class:`OSError`; a folder in its place stays."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder_fd)


def _open_part(folder_fd: int, part: str) -> int | None:
    if part in ("", ".", ".."):
        raise ValueError(f"{part!r} is not a name of a folder")
    try:
        return os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in NOT_A_FOLDER:
            raise
        return None

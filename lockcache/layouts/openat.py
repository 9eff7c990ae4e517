"""Reaching files below a root that is held open, part by part, so that nothing outside it is ever looked at or removed;
and the homes in which a program's entries are, by the patterns of their names.

Keeps one promise for directories whose writers we do not know: a directory that is swapped for a symlink between a look
and a removal is not followed, and another file system mounted below is not entered. Every step is an ``openat`` of one
name with ``O_NOFOLLOW`` on the descriptor of the last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from lockcache.filestream.disk import NOATIME

#: The errors of opening a folder that does not exist (any more): also for a symlink, where Linux reports ENOTDIR or
#: ELOOP.
NOT_A_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# The unit of st_blocks, whatever the file system's.
_BLOCK_BYTES: Final = 512
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: For each home the patterns of the folders' names that lead there from the root. The whole of a name has to match.
Homes = tuple[tuple[str, ...], ...]

#: Entries are in the root itself.
ROOT: Final[Homes] = ((),)


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
    if not path:
        yield parent_fd
        return
    device = os.fstat(parent_fd).st_dev
    fd = parent_fd
    try:
        for part in path.split("/"):
            above, below = fd, _open_part(fd, part)
            if below is None:
                yield None
                return
            fd = below
            if above != parent_fd:
                os.close(above)
            if os.fstat(fd).st_dev != device:
                yield None
                return
        yield fd
    finally:
        if fd != parent_fd:
            os.close(fd)


def status_in(folder_fd: int, name: str) -> os.stat_result | None:
    """Returns the status of ``name`` itself, also of a symlink; ``None`` if it is gone."""
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def statuses_in(folder_fd: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the name and the status of everything in a folder, also of symlinks themselves."""
    with os.scandir(folder_fd) as listed:
        for each in listed:
            with contextlib.suppress(FileNotFoundError):
                yield each.name, each.stat(follow_symlinks=False)


def disk_bytes(status: os.stat_result) -> int:
    """Returns what a file or a folder takes on the disk, as ``du`` says."""
    return status.st_blocks * _BLOCK_BYTES


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


def find_homes(root_fd: int, patterns: Homes) -> tuple[list[str], list[str]]:
    """Returns the folders in which entries are, and those with all that lead to them from the root."""
    homes, passed = [], {"": None}
    for names in patterns:
        paths = [""]
        for name in names:
            paths = [path for above in paths for path in folders_in(root_fd, above, re.compile(name, re.ASCII))]
            passed.update(dict.fromkeys(paths))
        homes += paths
    return homes, [*passed]


def is_home(path: str, patterns: Homes) -> bool:
    """Returns whether a folder with this path below the root is one in which entries are."""
    parts = path.split("/") if path else []
    return any(
        len(parts) == len(names) and all(re.fullmatch(*pair, re.ASCII) for pair in zip(names, parts, strict=True))
        for names in patterns
    )


def folders_in(root_fd: int, path: str, pattern: re.Pattern[str]) -> list[str]:
    """Returns the paths of the folders in a folder whose names match."""
    with folder(root_fd, path) as fd:
        if fd is None:
            return []
        with os.scandir(fd) as listed:
            names = [
                each.name for each in listed if pattern.fullmatch(each.name) and each.is_dir(follow_symlinks=False)
            ]
    return [join(path, name) for name in names]


def join(path: str, name: str) -> str:
    """Returns the path of a name in the folder with this path below the root."""
    return f"{path}/{name}" if path else name


def _open_part(folder_fd: int, part: str) -> int | None:
    if part in ("", ".", ".."):
        raise ValueError(f"{part!r} is not a name of a folder")
    try:
        return os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=folder_fd)
    except OSError as error:
        if error.errno not in NOT_A_FOLDER:
            raise
        return None

# SPDX-License-Identifier: Apache-2.0
"""Reaching files below a root that is held open, part by part, so that nothing outside it is ever looked at or removed;
and the homes in which a program's entries are, by the patterns of their names.

Keeps one promise for directories whose writers we do not know: a directory that is swapped for a symlink between a look
and a removal is not followed, and what is mounted below is not entered, be it another file system or, by a bind mount,
another part of the same one. Every step is one ``openat2`` of one name, on the descriptor of the last, that refuses
symlinks and mounts; where kernel or sandbox do not know it (Linux before 5.6), an ``openat`` with ``O_NOFOLLOW``, and
the mount of what was opened is compared.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from typing import Final

from lockcache.filestream.disk import NOATIME

#: The errors of opening a folder that does not exist (any more): also for a symlink, where Linux reports ENOTDIR or
#: ELOOP.
NOT_A_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

# A mount in the place of a folder.
_NOT_OURS: Final = (*NOT_A_FOLDER, errno.EXDEV)

_FILE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# The unit of st_blocks, whatever the file system's.
_BLOCK_BYTES: Final = 512
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

# openat2 has the same number on every architecture but Alpha. Python has no call for it.
_OPENAT2: Final = 437
_NO_MOUNTS, _NO_MAGIC_LINKS, _NO_SYMLINKS = 1, 2, 4
_HOW: Final = struct.pack("=QQQ", _FLAGS | os.O_NOFOLLOW, 0, _NO_MOUNTS | _NO_MAGIC_LINKS | _NO_SYMLINKS)
# Of a kernel that lacks the call, and of sandboxes that know no calls but old ones.
_UNKNOWN_CALL: Final = (errno.ENOSYS, errno.EPERM)

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

    ``None`` where one of the parts is missing, no folder, a symlink, on another file system, or a mount. Raises
    :class:`OSError` for what cannot be read.
    """
    with Descent(parent_fd) as descent:
        yield descent.go(path)


class Descent:
    """A place below an open folder that moves from folder to folder: each step costs one opening, at any depth.

    For a walk that goes through hundreds of folders one in another: to go to each from the top takes time by the square
    of their depth. For a ``with`` block, which closes what it opened.
    """

    def __init__(self, top_fd: int) -> None:
        """Begin in the open folder ``top_fd``, which stays open."""
        self._top_fd = self._fd = top_fd
        self._device = os.fstat(top_fd).st_dev
        # The folder that is open, and the inodes of those that lead to it, its own the last.
        self._path = ""
        self._inodes: list[int] = []

    def __enter__(self) -> Descent:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def go(self, path: str) -> int | None:
        """Returns the open folder ``path`` (parts joined by ``/``; empty: the top itself), open until the next call.

        ``None`` and :class:`OSError` as for :func:`folder`.
        """
        try:
            while self._path and path != self._path and not path.startswith(f"{self._path}/"):
                self._go_up()
            left = path[len(self._path) :].removeprefix("/") if self._path else path
            for part in left.split("/") if path != self._path else ():
                if not self._go_down(part):
                    self._leave()
                    return None
        except BaseException:
            self._leave()
            raise
        return self._fd

    def _go_down(self, part: str) -> bool:
        fd = _open_part(self._fd, part)
        if fd is None:
            return False
        self._replace(fd)
        status = os.fstat(fd)
        self._path = join(self._path, part)
        self._inodes.append(status.st_ino)
        return status.st_dev == self._device

    def _go_up(self) -> None:
        """Go to the folder above if it is the one that led here; to the top if the open one was moved since."""
        above = self._path.rpartition("/")[0]
        if not above:
            self._leave()
            return
        self._replace(os.open("..", _FLAGS, dir_fd=self._fd))
        self._path = above
        self._inodes.pop()
        status = os.fstat(self._fd)
        if (status.st_dev, status.st_ino) != (self._device, self._inodes[-1]):
            self._leave()

    def _replace(self, fd: int) -> None:
        self._fd, left = fd, self._fd
        if left not in (self._top_fd, fd):
            os.close(left)

    def _leave(self) -> None:
        """Go back to the top."""
        self._path, self._inodes = "", []
        self._replace(self._top_fd)


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


def bytes_below(folder_fd: int) -> int:
    """Returns what all that is in an open folder takes on the disk, at any depth."""
    total, left = 0, [""]
    with Descent(folder_fd) as descent:
        while left:
            path = left.pop()
            fd = descent.go(path)
            for name, status in () if fd is None else statuses_in(fd):
                total += disk_bytes(status)
                if stat.S_ISDIR(status.st_mode):
                    left.append(join(path, name))
    return total


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
        fd = _open_on_this_mount(folder_fd, part)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        return None
    return fd


def _open_on_this_mount(folder_fd: int, part: str) -> int:
    call, number_of_error = _openat2()
    while call is not None:
        fd: int = call(_OPENAT2, folder_fd, os.fsencode(part), _HOW, len(_HOW))
        if fd >= 0:
            return fd
        number = number_of_error()
        if number in _UNKNOWN_CALL:
            break
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), part)
    fd = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=folder_fd)
    if _mount_of(fd) != _mount_of(folder_fd):
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
    return fd


@functools.cache
def _openat2() -> tuple[Callable[..., int] | None, Callable[[], int]]:
    """Returns the C library's ``syscall``, where Python can call it, and what tells its error."""
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).syscall
        call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
        call.restype = ctypes.c_long
        return call, ctypes.get_errno
    except (ImportError, OSError, AttributeError):
        return None, int


def _mount_of(fd: int) -> bytes:
    """Returns the number of the mount that an open folder is on; empty without ``/proc``."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as file:
            return file.read(4096).partition(b"mnt_id:")[2].split(b"\n", 1)[0]
    except OSError:
        return b""

"""Folders and files of ours on disk: how they are made, private or shared, and that a folder is one and no symlink.

Decides one rule for modes: what is made is as shared as the folder that it is put into. Below a private root that is
0700 and 0600 whatever the umask; below one that a group may write to (made so on purpose, :mod:`.permissions`) it is
2770 and 0660 whatever the umask, of that folder's group. So the root's own mode is the only record of who shares it.

Keeps invariant 5 for sharing: nothing stands under its name before it has the mode that the others of the group need,
so a death in between leaves no lock file or folder that only the dead could use.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from lockcache.filestream.disk.descriptors import Descriptor, opened

__all__ = [
    "PlantedFolderError",
    "create_file",
    "is_shared",
    "make_folder",
    "make_private_folder",
    "make_shared_folder",
    "open_folder",
    "open_or_create",
    "refuse_symlink",
    "share_file",
    "share_folder",
]

_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600
_SHARED_FOLDER: Final = 0o2770
_SHARED_FILE: Final = 0o660

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_NAMELESS: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)

_serials = itertools.count()


class PlantedFolderError(NotADirectoryError):
    """Something that is no folder stands where one of ours belongs, and is not followed."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOTDIR, "in the way of a cache directory", path)


def is_shared(folder: str) -> bool:
    """Whether a group may write to a folder."""
    return bool(os.stat(folder).st_mode & stat.S_IWGRP)


def refuse_symlink(path: str) -> None:
    """Raise :class:`PlantedFolderError` if a symlink stands there. Anything else, or nothing, is not looked into."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise PlantedFolderError(path)


def make_folder(path: str) -> None:
    """Make one folder, unless it is there. Its parent must be. What else stands there is refused, also a symlink."""
    try:
        if not is_shared(os.path.dirname(path)):
            os.mkdir(path, _PRIVATE_FOLDER)
        elif not os.path.lexists(path) or not stat.S_ISDIR(os.lstat(path).st_mode):
            make_shared_folder(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise PlantedFolderError(path) from None


def share_folder(path: str, gid: int | None = None) -> None:
    """Let a group (``None``: the folder's) have a folder of ours. Raises :class:`PermissionError` to a non-member."""
    if gid is not None and os.stat(path).st_gid != gid:
        os.chown(path, -1, gid)
    os.chmod(path, _SHARED_FOLDER)


def share_file(fd: int) -> None:
    """Let the group have a file of ours that was just made, whatever the umask."""
    os.fchmod(fd, _SHARED_FILE)


def create_file(path: str, flags: int) -> Descriptor:
    """Make a file that is not there, under a name that only we use: staged files. Open."""
    made = Descriptor()
    made.open(path, flags | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    if is_shared(os.path.dirname(path)):
        share_file(made.number)
    return made


def open_or_create(path: str, flags: int, open_file: Callable[[str, int, int], int] = os.open) -> int:
    """Open a file that several processes may want at once, making it empty if it is missing: lock files.

    With ``open_file``, :meth:`.descriptors.Descriptor.open`, it has an owner from the start.
    """
    # Without O_CREAT first: in folders with the sticky bit the kernel refuses it for files of others.
    try:
        return open_file(path, flags, _PRIVATE_FILE)
    except FileNotFoundError:
        folder = os.path.dirname(path)
    if not is_shared(folder):
        return open_file(path, flags | os.O_CREAT, _PRIVATE_FILE)
    with contextlib.suppress(FileExistsError):
        _create_shared(path, folder)
    return open_file(path, flags, _PRIVATE_FILE)


@contextlib.contextmanager
def open_folder(root: str, *names: str) -> Iterator[int]:
    """A descriptor of a folder below ``root``, for use as ``dir_fd``: no symlink on the way, not even for a moment.

    For whoever removes files by names that anybody may have chosen. Raises :class:`OSError`.
    """
    folder = opened(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        inner = opened(name, _OPEN_FOLDER, dir_fd=folder.number)
        folder.close()
        folder = inner
    with folder as fd:
        yield fd


def make_private_folder(path: str) -> None:
    """Make a folder with mode 0700 wherever it is, unless it is there: a root."""
    try:
        os.mkdir(path, _PRIVATE_FOLDER)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise PlantedFolderError(path) from None


def make_shared_folder(path: str, gid: int | None = None) -> None:
    """Make a folder for a group, as a unit: one that only its maker may write to would be in the others' way.

    Also after its maker's death, therefore beside its place first. Raises :class:`FileExistsError`, and
    :class:`PermissionError` to who is no member of the group.
    """
    staged = f"{path}.new-{os.getpid()}-{next(_serials)}"
    os.mkdir(staged, _PRIVATE_FOLDER)
    try:
        share_folder(staged, gid)
        os.rename(staged, path)  # onto nothing, or onto an empty folder, which is as good
    except OSError as error:
        os.rmdir(staged)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        raise


def _create_shared(path: str, folder: str) -> None:
    try:
        nameless = Descriptor()
        nameless.open(folder, _NAMELESS, _SHARED_FILE)
        with nameless as fd:
            share_file(fd)
            # dir_fd only so that Python calls linkat, which follows the link of /proc to the file without a name.
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        # No files without a name here (NFS), or no /proc. A death between the two calls then leaves a file that the
        # others cannot open, which the error that they get names.
        create_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW).close()

# SPDX-License-Identifier: Apache-2.0
"""Folders and files by descriptors: opened without following a symlink, and made as shared as what they are put into.

Decides one rule for modes: below a private root, what is made is 0700 and 0600 whatever the umask; below one that a
group may write to (made so on purpose, :mod:`.permissions`) it is 2770 and 0660 whatever the umask, of that folder's
group. So the root's own mode is the only record of who shares it.

Keeps invariant 5 (death is free) for sharing: nothing stands under its name before it has the mode that the others of
the group need, so a death in between leaves no lock file or folder that only the dead could use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from lockcache.filestream.disk.descriptors import FOLDER, Descriptor, opened

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600
_SHARED_FOLDER: Final = 0o2770
_SHARED_FILE: Final = 0o660

# The errors of opening a symlink or a file in a folder's place: ELOOP for a symlink, which O_NOFOLLOW refuses (Linux
# says ENOTDIR where O_DIRECTORY is asked for too).
_NO_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP)
#: The same, and that of a missing folder.
NOT_THERE: Final = (errno.ENOENT, *_NO_FOLDER)
_NAMELESS: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


# Tries go on for as long as a server takes for another rename.
_MOST_RENAMES: Final = 200
_BETWEEN_RENAMES_SECONDS: Final = 0.005


class PlantedFolderError(NotADirectoryError):
    """Something other than a folder stands where a cache's folder belongs, and is not followed."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOTDIR, "in the way of a cache directory", path)

    def __reduce__(self) -> tuple[type[PlantedFolderError], tuple[str]]:
        return type(self), (self.filename,)  # OSError would give back its own three arguments


class Folder(contextlib.AbstractContextManager["Folder"]):
    """One folder, reached: ``with reach.at(path) as folder``. Its methods take names in it.

    Errors of the block that name such a name name the whole path.
    """

    __slots__ = ("_file", "_prefix", "fd", "number", "path")

    def __init__(self, path: str, file: Descriptor | None = None) -> None:
        self.path = path
        self._file = file
        #: A descriptor of it, for calls of :mod:`os` with :meth:`at`; ``None`` where it is reached by its path.
        self.fd = None if file is None else file.number
        #: The same, for calls that need one; -1 where there is none, and no call takes that for another folder.
        self.number = -1 if file is None else file.number
        self._prefix = f"{path}/" if file is None else ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        self._file.close()
        if isinstance(error, OSError) and isinstance(error.filename, str) and "/" not in error.filename:
            error.filename = f"{self.path}/{error.filename}"

    def close(self) -> None:
        """Close it. Does nothing where it is reached by its path. Raises nothing."""
        if self._file is not None:
            self._file.close()

    def at(self, name: str) -> str:
        """Returns how a call with ``dir_fd=folder.fd`` names what is called so in the folder."""
        return self._prefix + name

    def open(self, name: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        """Open a file, in ``file`` if that is given."""
        file = Descriptor() if file is None else file
        file.open(self._prefix + name, flags | os.O_NOFOLLOW, dir_fd=self.fd)
        return file

    def stat(self, name: str) -> os.stat_result:
        """Returns the status of what is called so, and of no symlink's target."""
        return os.stat(self._prefix + name, dir_fd=self.fd, follow_symlinks=False)

    def is_folder(self, name: str) -> bool:
        """Returns whether a folder is called so."""
        try:
            return stat.S_ISDIR(self.stat(name).st_mode)
        except FileNotFoundError:
            return False

    def rename(self, name: str, target: Folder, new: str) -> None:
        """Rename a file into ``target``."""
        rename_patiently(lambda: os.rename(self.at(name), target.at(new), src_dir_fd=self.fd, dst_dir_fd=target.fd))

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self._prefix + name, dir_fd=self.fd)

    def rmdir(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(self._prefix + name, dir_fd=self.fd)


def refuse_symlink(path: str) -> None:
    """Raise :class:`PlantedFolderError` if a symlink stands there. Anything else, or nothing, is not looked into."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise PlantedFolderError(path)


def is_shared(folder: str) -> bool:
    """Returns whether a group may write to a folder."""
    return bool(os.stat(folder).st_mode & stat.S_IWGRP)


def share_folder(path: str, gid: int | None = None) -> None:
    """Let a group (``None``: the folder's) have an empty folder: a root.

    Raises :class:`PermissionError` to a non-member, and for a folder that is somebody else's or is not empty.
    """
    with opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as fd:
        _share_new(fd, path, gid)


def share_file(fd: int) -> None:
    """Let the group have a file that was just made, whatever the umask."""
    os.fchmod(fd, _SHARED_FILE)


def make_shared_folder(path: str, gid: int | None = None) -> None:
    """Make a root for a group. Raises :class:`FileExistsError`, and :class:`PermissionError` to a non-member.

    The parents of a root may be reached through symlinks: that is its owner's choice.
    """
    parent, name = os.path.split(path)
    with opened(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as parent_fd:
        make_shared_at(parent_fd, name, gid)


def make_shared_at(parent_fd: int, name: str, gid: int | None = None) -> None:
    """Make a shared folder as a unit: one that only its dead maker could use would be in the way of all others.

    It is made next to its place first, under a name that nobody can foresee, and by a descriptor: a process that may
    write to the parent could put a symlink to another folder under the name, which would then be given to the group.
    """
    staged = f"{name}.new-{secrets.token_hex(8)}"
    os.mkdir(staged, PRIVATE_FOLDER, dir_fd=parent_fd)
    try:
        with opened(staged, FOLDER, dir_fd=parent_fd) as fd:
            _share_new(fd, name, gid)
        # The rename replaces nothing, or an empty folder, which is as good. If another user swapped the staged folder,
        # that user could have put the same under the new name anyway.
        os.rename(staged, name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
    except OSError as error:
        with contextlib.suppress(OSError):  # swapped: not the folder that was made here, so it stays
            os.rmdir(staged, dir_fd=parent_fd)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        raise


def _share_new(fd: int, path: str, gid: int | None) -> None:
    # A folder of another owner, or one that is not empty, is not the one that was made here: it was swapped.
    if os.fstat(fd).st_uid != os.geteuid() or os.listdir(fd):
        raise PermissionError(errno.EPERM, "not an empty folder of your own, to share with a group", path)
    if gid is not None and os.fstat(fd).st_gid != gid:
        os.fchown(fd, -1, gid)
    os.fchmod(fd, _SHARED_FOLDER)


def create_shared(folder_fd: int, name: str, gid: int | None = None) -> None:
    """Make an empty file for the group of its folder, or the one that is given. Raises :class:`FileExistsError`."""
    try:
        nameless = Descriptor()
        nameless.open(".", _NAMELESS, PRIVATE_FILE, dir_fd=folder_fd)
        with nameless as fd:
            _give_to_group(fd, gid)
            # With a dir_fd Python calls linkat, which follows the link of /proc to the file without a name.
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder_fd, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        # This file system (NFS) has no files without a name, or there is no /proc. A death between the two calls then
        # leaves a file that other members cannot open; their error names it.
        file = Descriptor()
        file.open(name, _NEW, PRIVATE_FILE, dir_fd=folder_fd)
        with file as fd:
            _give_to_group(fd, gid)


def _give_to_group(fd: int, gid: int | None) -> None:
    if gid is not None:
        os.fchown(fd, -1, gid)
    share_file(fd)


def make_private_folder(path: str) -> None:
    """Make a folder with mode 0700 wherever it is, unless it is there: a root."""
    try:
        os.mkdir(path, PRIVATE_FOLDER)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise PlantedFolderError(path) from None


def open_folder(root: str, *names: str) -> Descriptor:
    """Open the folder that ``names`` lead to, each in the one before, through no symlink: for use as ``dir_fd``.

    For removing files by names that others may have chosen. The root itself may be a symlink. Raises :class:`OSError`.
    """
    # Nobody but the root's owner decides what is in front of the first name: one call does for both.
    path = f"{root}/{names[0]}" if names else root or "/"
    folder = Descriptor()
    try:
        folder.open(path, FOLDER if names else FOLDER & ~os.O_NOFOLLOW)
        for name in names[1:]:
            path = f"{path}/{name}"
            inner = Descriptor()
            inner.open(name, FOLDER, dir_fd=folder.number)
            folder.close()
            folder = inner
    except OSError as error:
        error.filename = path
        if error.errno in _NO_FOLDER:
            raise PlantedFolderError(path) from None
        raise
    return folder


def rename_patiently(rename: Callable[[], None]) -> None:
    """Rename; on NFS, again while another process of this host renames to the same name."""
    for _ in range(_MOST_RENAMES):
        try:
            return rename()
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
        time.sleep(_BETWEEN_RENAMES_SECONDS)
    return rename()

# SPDX-License-Identifier: Apache-2.0
"""The way to the folders and files of one cache directory, chosen once: open, create, rename, unlink, list, stat.

Decides by which way a directory is reached (``layout.reach``), so that nobody else asks for its kind:

- :class:`Reach`: by paths. Below a private root of lockcache's no other user can plant a symlink, so that costs no
  further call.
- :class:`FromRoot`: by descriptors, each folder opened in the one before, from the root on, through no symlink: below
  another program's root, which its owner may share at any moment.
- :class:`GroupReach`: the same below a root that a group may write to, and what is made there is the group's. So
  members cannot lead each other's processes out of their directory: a folder that is swapped for a symlink between two
  calls leads nowhere.

What has to be asked of a server, too, is :class:`.mounts.Hosts`.

By path, and not by a descriptor that is kept, on a private directory: what a kept one says of a missing name holds only
while its folder is not removed and made again, which takes another call to know each time.

Keeps invariant 5 (death is free) for sharing, by :mod:`.folders`: nothing stands under its name before it has the mode
that the others of the group need.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from lockcache.filestream.disk.descriptors import FOLDER, Descriptor
from lockcache.filestream.disk.folders import (
    NOT_THERE,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    Folder,
    PlantedFolderError,
    create_shared,
    make_shared_at,
    open_folder,
    refuse_symlink,
    rename_patiently,
    share_file,
)

if TYPE_CHECKING:
    from lockcache.filestream.disk.layout import Layout


class Reach:
    """The way to what is below a private root on this host: by paths.

    Methods take whole paths. They raise :class:`PlantedFolderError` where something else is in a folder's place, and
    :class:`FileNotFoundError` for a missing folder.
    """

    __slots__ = ("_root",)

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")

    def at(self, path: str) -> Folder:
        """Returns a folder, for names in it."""
        return Folder(path)

    def opened(self, path: str, within: Folder | None = None) -> Folder:
        """Returns a folder with a descriptor, for lists of it. ``within``: the folder that it is in, opened before."""
        file = Descriptor()
        if within is None:
            file.open(path, FOLDER)
        else:
            file.open(os.path.basename(path), FOLDER, dir_fd=within.fd)
        return Folder(path, file)

    def opened_if_there(self, path: str, within: Folder | None = None) -> Folder | None:
        """Returns a folder like :meth:`opened`; ``None`` where there is none, or a symlink.

        Any other error is raised: a folder that cannot be read now (EIO, ESTALE, no descriptors left) is not an empty
        one, and a recount that took it for one would let the directory grow past its cap by as much.
        """
        try:
            return self.opened(path, within)
        except OSError as error:
            if error.errno in NOT_THERE:
                return None
            raise

    def open(self, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        """Open a file or folder, in ``file`` if that is given: so it has an owner from the start."""
        file = Descriptor() if file is None else file
        file.open(path, flags | os.O_NOFOLLOW)
        return file

    def open_or_create(self, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        """Open a file that several processes may want at once, making it empty if it is missing: lock files."""
        file = Descriptor() if file is None else file
        file.open(path, flags | os.O_CREAT, PRIVATE_FILE)
        return file

    def create(self, path: str, flags: int, made: Descriptor) -> int:
        """Make a file that is not there, under a name that only we use: staged files. Returns its descriptor."""
        # Exclusive creation is one more call to an NFS server, and nobody else can plant anything here.
        return made.open(path, flags | os.O_CREAT, PRIVATE_FILE)

    def create_in(self, folder: Folder, name: str, flags: int, made: Descriptor) -> int:
        """Make a file like :meth:`create`, in a folder that was reached."""
        return made.open(folder.at(name), flags | os.O_CREAT | os.O_EXCL, PRIVATE_FILE, dir_fd=folder.fd)

    def make_folder(self, path: str) -> bool:
        """Make a folder, unless it is there. Its parent must be. What else stands there is refused.

        Returns whether it is new, and so empty.
        """
        try:
            os.mkdir(path, PRIVATE_FOLDER)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise PlantedFolderError(path) from None
            return False
        return True

    def rename(self, source: str, path: str) -> None:
        """Rename a file."""
        try:
            os.rename(source, path)
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
            rename_patiently(lambda: os.rename(source, path))

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove(self, path: str) -> bool:
        """Remove a file, if there is one. Returns whether there was one.

        A planted folder is not an entry, and what is behind a symlink is not the cache's: none of that is a file.
        """
        try:
            os.unlink(path)
        except OSError as error:
            if not _says_gone(error):
                raise
            return False
        return True

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            folder.rmdir(name)

    def refuse_symlinks(self, *folders: str) -> None:
        """Raise :class:`PlantedFolderError` if a symlink stands for a folder that will be reached by its path."""
        for folder in folders:
            refuse_symlink(folder)


class FromRoot(Reach):
    """The way to what is below another program's root: by descriptors, from the root on, through no symlink."""

    __slots__ = ()

    def at(self, path: str) -> Folder:
        # Not os.path.relpath, which is 5 us of a hit. A layout's paths begin with its root as it was given.
        if not path.startswith(self._root):
            raise ValueError(f"{path} is not below {self._root}")
        inner = path[len(self._root) :].strip("/")
        return Folder(path, open_folder(self._root, *(inner.split("/") if inner else ())))

    def opened(self, path: str, within: Folder | None = None) -> Folder:
        return self.at(path) if within is None else super().opened(path, within)

    def open(self, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            return folder.open(name, flags, file)

    def open_or_create(self, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        file = Descriptor() if file is None else file
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            file.open(name, flags | os.O_CREAT, PRIVATE_FILE, dir_fd=folder.fd)
        return file

    def create(self, path: str, flags: int, made: Descriptor) -> int:
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            return self.create_in(folder, name, flags, made)

    def make_folder(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            try:
                return not folder.is_folder(name) and self._make_at(folder, name)
            except FileExistsError:
                if not folder.is_folder(name):
                    raise PlantedFolderError(path) from None
        return False

    def _make_at(self, parent: Folder, name: str) -> bool:
        os.mkdir(name, PRIVATE_FOLDER, dir_fd=parent.fd)
        return True

    def rename(self, source: str, path: str) -> None:
        (old_parent, _, old), (parent, _, name) = source.rpartition("/"), path.rpartition("/")
        with self.at(old_parent) as old_folder, self.at(parent) as folder:
            old_folder.rename(old, folder, name)

    def unlink(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            folder.unlink(name)

    def remove(self, path: str) -> bool:
        try:
            self.unlink(path)
        except OSError as error:
            if not _says_gone(error):
                raise
            return False
        return True

    def refuse_symlinks(self, *folders: str) -> None:
        """Do nothing: no symlink is followed on the way."""


class GroupReach(FromRoot):
    """The way to what is below a root that a group may write to. What is made has the group's mode from the start."""

    __slots__ = ()

    def create_in(self, folder: Folder, name: str, flags: int, made: Descriptor) -> int:
        fd = super().create_in(folder, name, flags, made)
        share_file(fd)
        return fd

    def open_or_create(self, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        file = Descriptor() if file is None else file
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            # Without O_CREAT first: in folders with the sticky bit the kernel refuses it for files of others.
            try:
                return folder.open(name, flags, file)
            except FileNotFoundError:
                pass  # made below, where an interrupt finds no other exception under way
            with contextlib.suppress(FileExistsError):
                create_shared(folder.number, name)
            return folder.open(name, flags, file)

    def _make_at(self, parent: Folder, name: str) -> bool:
        make_shared_at(parent.number, name)
        return False  # its rename may have replaced a folder into which somebody puts a file now


def _says_gone(error: OSError) -> bool:
    """Returns whether an error of unlinking a file says that there is none.

    Its callers raise others: an error raised here would keep this frame, and the frame the error, with all descriptors
    of its callers, until the next garbage collection.
    """
    return error.errno in (*NOT_THERE, errno.EISDIR)


#: The way to a path that is not below the root of a cache.
BY_PATH: Final = Reach()


def reach_of(layout: Layout) -> Reach:
    """Returns the way to what is below the root of ``layout``. Raises :class:`OSError` for a root that is not there."""
    return (GroupReach if layout.is_shared else Reach)(layout.root)

"""The way to the folders and files of one cache directory, chosen once: open, create, rename, unlink, list, stat.

Decides by which way a directory is reached (:func:`reach_of`), so that nobody else asks for its kind:

- :class:`Reach`: by paths. Below a private root of lockcache's no other user can plant a symlink, so that costs no
  further call.
- :class:`FromRoot`: by descriptors, each folder opened in the one before, from the root on, through no symlink: below
  another program's root, which its owner may share at any moment.
- :class:`GroupReach`: the same below a root that a group may write to, and what is made there is the group's. So
  members cannot lead each other's processes out of their directory: a folder that is swapped for a symlink between two
  calls leads nowhere.
- and each of these where other hosts change the directory (:class:`_OnServer`): what this host remembers of a folder is
  brought up to date by opening the folder again.

By path, and not by a descriptor that is kept, on a private directory: what a kept one says of a missing name holds only
while its folder is not removed and made again, which takes another call to know each time.

Keeps invariant 5 (death is free) for sharing, by :mod:`.folders`: nothing stands under its name before it has the mode
that the others of the group need.
"""

from __future__ import annotations

import contextlib
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
        return made.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)

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
        os.rename(source, path)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        parent, _, name = path.rpartition("/")
        with self.at(parent) as folder:
            folder.rmdir(name)

    def refuse_symlinks(self, *folders: str) -> None:
        """Raise :class:`PlantedFolderError` if a symlink stands for a folder that will be reached by its path."""
        for folder in folders:
            refuse_symlink(folder)

    def look(self, path: str) -> bool:
        """Make this host see what other hosts have put into a folder, and removed. Returns whether the folder is there.

        On a local file system this does nothing, and the answer is ``True``.
        """
        return True

    def has(self, path: str, *, is_sure: bool = False) -> bool:
        """Returns whether a file is there, once this host sees what others have put into its folder.

        ``is_sure``: the answer is worth a list of the folder on NFS, where it is rarely needed.
        """
        return os.access(path, os.F_OK, effective_ids=True)

    def sees(self, path: str) -> bool:
        """Make this host see what others have put into a file's folder. Returns whether the file may be there."""
        return True

    def look_at_shard_locked(self, shard: int, *, makes: bool = False) -> bool:
        """See what other hosts did to a shard: what is accounted for here must be what is there. Requires: shard lock.

        ``makes``: a missing folder of entries will be wanted. To make it says as well whether another host has, in one
        call to the server, where to look in its parent, look again, and make it then are three. Returns whether it was
        made, so that there is nothing in it.
        """
        return False


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


class _OnServer(Reach):
    """What a way asks a server: what other hosts did there.

    A client of a network file system remembers names, missing ones too, for up to a minute. Opening the folder makes it
    ask the server. A folder that was missing is itself such a name, of its parent.
    """

    __slots__ = ("_layout",)

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout.root)
        self._layout = layout

    def look(self, path: str) -> bool:
        try:
            try:
                self.opened(path).close()
            except FileNotFoundError:
                self.opened(os.path.dirname(path)).close()
                self.opened(path).close()
        except OSError:
            return False
        return True

    def sees(self, path: str) -> bool:
        # Only NFS 3 looks for the name before it opens the file: elsewhere that is one more call to the server.
        return self.has(path, is_sure=True) if self._layout.is_nfs_3 else self.look(os.path.dirname(path))

    def has(self, path: str, *, is_sure: bool = False) -> bool:
        """Returns as :meth:`Reach.has`.

        On NFS that takes more than :meth:`look`: a name that was missing may stay missing. A client of NFS 3 notices
        that a folder has changed by its time, and does not notice what changes within one tick of the server's clock
        (4 ms, or a whole second) after a look. And Linux's NFS 4 client takes the answer to an ``open`` for as new as
        what it knows of the folder when it handles that answer, which may be newer: another process has looked at the
        folder meanwhile. To list the folder gives the client its names, if the list that it remembers is dropped
        before.
        """
        folder = os.path.dirname(path)
        is_folder_there = self.look(folder)
        if is_folder_there and super().has(path):
            return True
        if not (is_sure and self._layout.is_nfs):
            return False
        for each in (folder,) if is_folder_there else (os.path.dirname(folder), folder):
            with contextlib.suppress(OSError), self.opened(each) as listed:
                os.posix_fadvise(listed.number, 0, 0, os.POSIX_FADV_DONTNEED)
                os.listdir(listed.number)
        return super().has(path)

    def look_at_shard_locked(self, shard: int, *, makes: bool = False) -> bool:
        layout, folder, is_new = self._layout, self._layout.entry_shard(shard), False
        if makes:
            is_new = self._open_or_make(folder)
        else:
            self.look(folder)
        # NFS 3 has no attributes, so there is this folder as soon as another host has put anything.
        if super().has(layout.records) or (layout.is_nfs_3 and self.look(layout.records)):
            self.look(layout.record_shard(shard))
            if super().has(layout.views):
                self.look(layout.view_shard(shard))
        return is_new

    def _open_or_make(self, path: str) -> bool:
        """Make this host see what is in a folder, and make the folder if it is missing. Returns whether it was made."""
        try:
            self.opened(path).close()
        except FileNotFoundError:
            with contextlib.suppress(OSError):  # without its parent, the first writer makes both
                if self.make_folder(path):
                    return True
            self.look(path)
        except OSError:
            pass  # a symlink, or a server that is gone: the next operation in the folder reports it
        return False


class NetworkReach(_OnServer):
    """The way to what is below a private root on a server: by paths, and a folder is opened again to see it."""

    __slots__ = ()

    def create(self, path: str, flags: int, made: Descriptor) -> int:
        # Exclusive creation is one more call to an NFS server, and no other process uses this name.
        return made.open(path, flags | os.O_CREAT, PRIVATE_FILE)

    def rename(self, source: str, path: str) -> None:
        rename_patiently(lambda: os.rename(source, path))


class _NetworkFromRoot(_OnServer, FromRoot):
    __slots__ = ()


class _NetworkGroupReach(_OnServer, GroupReach):
    __slots__ = ()


#: The way to a path that is not below the root of a cache.
BY_PATH: Final = Reach()


def reach_of(layout: Layout) -> Reach:
    """Returns the way to what is below the root of ``layout``. Raises :class:`OSError` for a root that is not there."""
    if layout.is_shared:
        return _NetworkGroupReach(layout) if layout.is_network else GroupReach(layout.root)
    if layout.is_guest:
        return _NetworkFromRoot(layout) if layout.is_network else FromRoot(layout.root)
    return NetworkReach(layout) if layout.is_network else Reach(layout.root)

"""Folders and files on disk: made private or shared, and opened without following a symlink.

Decides one rule for modes: what is made is as shared as the folder that it is put into. Below a private root that is
0700 and 0600 whatever the umask; below one that a group may write to (made so on purpose, :mod:`.permissions`) it is
2770 and 0660 whatever the umask, of that folder's group. So the root's own mode is the only record of who shares it.

Keeps invariant 5 (death is free) for sharing: nothing stands under its name before it has the mode that the others of
the group need, so a death in between leaves no lock file or folder that only the dead could use.

Keeps members of a group from leading each other's processes out of their directory: below a root that others may write
to, whatever is opened, made, renamed, removed or given a mode is reached by descriptors (:class:`below`), from the root
on, through no symlink, so that a folder that is swapped for one between two calls leads nowhere. The same holds below
another program's root, which its owner may share at any moment. Below a private root of lockcache's no other user can
plant a symlink, so paths are used, which costs no further call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

from lockcache.filestream.disk.descriptors import FOLDER, Descriptor, opened
from lockcache.filestream.disk.layout import Layout

_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600
_SHARED_FOLDER: Final = 0o2770
_SHARED_FILE: Final = 0o660

# Whether each try is the last: tries go on for as long as a server takes for another rename.
_RENAMES: Final = (*(False,) * 200, True)
_BETWEEN_RENAMES_SECONDS: Final = 0.005
_NAMELESS: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)

# The errors of opening a symlink or a file in a folder's place.
_NO_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP)


class PlantedFolderError(NotADirectoryError):
    """Something other than a folder stands where a cache's folder belongs, and is not followed."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOTDIR, "in the way of a cache directory", path)

    def __reduce__(self) -> tuple[type[PlantedFolderError], tuple[str]]:
        return type(self), (self.filename,)  # OSError would give back its own three arguments


class below:  # noqa: N801 - used as a function
    """``with below(layout, path) as (folder_fd, name):`` how to name what is below the root in a call of :mod:`os`.

    In a directory that a group shares, and in another program's: its folder, opened from the root on without following
    a symlink, and its name in that. In a private one of lockcache's ``None`` and the path itself, for no system call.
    Raises :class:`PlantedFolderError` for a symlink on the way and :class:`FileNotFoundError` for a missing folder;
    errors of the block name the whole path.
    """

    __slots__ = ("_folder", "_layout", "_name", "_path")

    def __init__(self, layout: Layout | None, path: str) -> None:
        """``layout``: ``None`` for a path that is not below the root of a cache."""
        self._layout = layout
        self._path = path
        self._name = ""
        self._folder: Descriptor | None = None

    def __enter__(self) -> tuple[int | None, str]:
        layout = self._layout
        if layout is None or not layout.is_by_descriptors:
            return None, self._path
        if not self._path.startswith(layout.root):
            raise ValueError(f"{self._path} is not below {layout.root}")
        # Not os.path.relpath, which is 5 us of a hit. A layout's paths begin with its root as it was given.
        *folders, self._name = self._path[len(layout.root) :].strip("/").split("/")
        self._folder = _open_inner(layout.root, folders)
        return self._folder.number, self._name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is None:
            return
        self._folder.close()
        if isinstance(error, OSError) and error.filename == self._name:
            error.filename = self._path


def is_shared(folder: str) -> bool:
    """Returns whether a group may write to a folder."""
    return bool(os.stat(folder).st_mode & stat.S_IWGRP)


def refuse_symlink(path: str) -> None:
    """Raise :class:`PlantedFolderError` if a symlink stands there. Anything else, or nothing, is not looked into."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise PlantedFolderError(path)


def make_folder(layout: Layout | None, path: str) -> bool:
    """Make one folder below the root, unless it is there. Its parent must be. What else stands there is refused.

    Returns whether it is new, and so empty.
    """
    with below(layout, path) as (parent_fd, name):
        try:
            if parent_fd is None:
                os.mkdir(path, _PRIVATE_FOLDER)
                return True
            if not _is_folder(parent_fd, name):
                if layout is not None and layout.is_shared:
                    _make_shared_at(parent_fd, name)
                else:
                    os.mkdir(name, _PRIVATE_FOLDER, dir_fd=parent_fd)
                    return True
        except FileExistsError:
            if not _is_folder(parent_fd, name):
                raise PlantedFolderError(path) from None
    return False


def share_folder(path: str, gid: int | None = None) -> None:
    """Let a group (``None``: the folder's) have an empty folder: a root.

    Raises :class:`PermissionError` to a non-member, and for a folder that is somebody else's or is not empty.
    """
    with opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as fd:
        _share_new(fd, path, gid)


def share_file(fd: int) -> None:
    """Let the group have a file that was just made, whatever the umask."""
    os.fchmod(fd, _SHARED_FILE)


def open_below(layout: Layout | None, path: str, flags: int) -> Descriptor:
    """Open what is below the root, as :class:`below` reaches it."""
    descriptor = Descriptor()
    with below(layout, path) as (folder_fd, name):
        descriptor.open(name, flags | os.O_NOFOLLOW, dir_fd=folder_fd)
    return descriptor


def revalidate(layout: Layout, path: str) -> bool:
    """Make this host see what other hosts have put into a folder, and removed. Returns whether the folder is there.

    A client of a network file system remembers names, missing ones too, for up to a minute. Opening the folder makes it
    ask the server. A folder that was missing is itself such a name, of its parent. On a local file system this does
    nothing, and the answer is ``True``.
    """
    if not layout.is_network:
        return True
    for each in (path, os.path.dirname(path), path):
        try:
            open_below(layout, each, FOLDER).close()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        if each is path:
            return True
    return False


def revalidate_shard_locked(layout: Layout, shard: int, *, makes: bool = False) -> bool:
    """See what other hosts did to a shard: what is accounted for here must be what is there. Requires: shard lock.

    ``makes``: a missing folder of entries will be wanted. To make it says as well whether another host has, in one call
    to the server, where to look in its parent, look again, and make it then are three. Returns whether it was made, so
    that there is nothing in it.
    """
    if not layout.is_network:
        return False
    folder, is_new = layout.entry_shard(shard), False
    if makes:
        is_new = _open_or_make(layout, folder)
    else:
        revalidate(layout, folder)
    # NFS 3 has no attributes, so there is this folder as soon as another host has put anything.
    if os.access(layout.records, os.F_OK, effective_ids=True) or (
        layout.is_nfs_3 and revalidate(layout, layout.records)
    ):
        revalidate(layout, layout.record_shard(shard))
        if os.access(layout.views, os.F_OK, effective_ids=True):
            revalidate(layout, layout.view_shard(shard))
    return is_new


def _open_or_make(layout: Layout, path: str) -> bool:
    """Make this host see what is in a folder, and make the folder if it is missing. Returns whether it was made."""
    try:
        open_below(layout, path, FOLDER).close()
    except FileNotFoundError:
        with contextlib.suppress(OSError):  # without its parent, the first writer makes both
            if make_folder(layout, path):
                return True
        revalidate(layout, path)
    except OSError:
        pass  # a symlink, or a server that is gone: the next operation in the folder reports it
    return False


def rename_below(layout: Layout, source: str, path: str) -> None:
    """Rename what is below the root, as :class:`below` reaches it."""
    if not layout.is_by_descriptors:  # written out, in each put: by way of two objects it is 4 us more
        rename_at(None, source, None, path)
        return
    with below(layout, source) as (source_fd, old), below(layout, path) as (folder_fd, new):
        rename_at(source_fd, old, folder_fd, new)


def rename_at(source_fd: int | None, source: str, folder_fd: int | None, target: str) -> None:
    """Rename like :func:`os.rename`; on NFS, again while another process of this host renames to the same name."""
    for is_last in _RENAMES:
        try:
            os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=folder_fd)
            return
        except OSError as error:
            if error.errno != errno.ETXTBSY or is_last:
                raise
        time.sleep(_BETWEEN_RENAMES_SECONDS)


def unlink_below(layout: Layout, path: str) -> None:
    """Remove a file below the root, as :class:`below` reaches it."""
    with below(layout, path) as (folder_fd, name):
        os.unlink(name, dir_fd=folder_fd)


def create_below(layout: Layout, path: str, flags: int, made: Descriptor) -> int:
    """Make a file below the root, as :func:`create_file` in the place that :class:`below` says. Its descriptor."""
    if not layout.is_by_descriptors:  # written out, in each put
        # Exclusive creation is one more call to an NFS server, and no other process uses this name.
        is_exclusive = 0 if layout.is_network else os.O_EXCL
        return made.open(path, flags | os.O_CREAT | is_exclusive, _PRIVATE_FILE)
    with below(layout, path) as (folder_fd, name):
        return create_file(folder_fd, name, flags, made, is_shared=layout.is_shared).number


def create_file(
    folder_fd: int | None, name: str, flags: int, made: Descriptor | None = None, *, is_shared: bool = True
) -> Descriptor:
    """Make a file that is not there, under a name that only we use: staged files. Open, in ``made`` if that is given.

    Where it is, :class:`below` says; the group has it where that gave a descriptor, unless not ``is_shared``.
    """
    made = Descriptor() if made is None else made
    made.open(name, flags | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE, dir_fd=folder_fd)
    if folder_fd is not None and is_shared:
        share_file(made.number)
    return made


def open_or_create(layout: Layout | None, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
    """Open a file that several processes may want at once, making it empty if it is missing: lock files.

    In ``file``, if that is given, it has an owner from the start. ``layout`` as for :class:`below`.
    """
    file = Descriptor() if file is None else file
    with below(layout, path) as (folder_fd, name):
        if folder_fd is None or layout is None or not layout.is_shared:
            file.open(name, flags | os.O_CREAT, _PRIVATE_FILE, dir_fd=folder_fd)
            return file
        # Without O_CREAT first: in folders with the sticky bit the kernel refuses it for files of others.
        try:
            file.open(name, flags, dir_fd=folder_fd)
            return file
        except FileNotFoundError:
            pass  # made below, where an interrupt finds no other exception under way
        with contextlib.suppress(FileExistsError):
            create_shared(folder_fd, name)
        file.open(name, flags, dir_fd=folder_fd)
    return file


@contextlib.contextmanager
def open_folder(root: str, *names: str) -> Iterator[int]:
    """Yields a descriptor of a folder below ``root``, for use as ``dir_fd``: no symlink on the way is followed.

    For removing files by names that others may have chosen. Raises :class:`OSError`.
    """
    with _open_inner(root, names) as fd:
        yield fd


def make_private_folder(path: str) -> None:
    """Make a folder with mode 0700 wherever it is, unless it is there: a root."""
    try:
        os.mkdir(path, _PRIVATE_FOLDER)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise PlantedFolderError(path) from None


def make_shared_folder(path: str, gid: int | None = None) -> None:
    """Make a root for a group. Raises :class:`FileExistsError`, and :class:`PermissionError` to a non-member.

    The parents of a root may be reached through symlinks: that is its owner's choice.
    """
    parent, name = os.path.split(path)
    with opened(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as parent_fd:
        _make_shared_at(parent_fd, name, gid)


def _make_shared_at(parent_fd: int, name: str, gid: int | None = None) -> None:
    """Make a shared folder as a unit: one that only its dead maker could use would be in the way of all others.

    It is made next to its place first, under a name that nobody can foresee, and by a descriptor: a process that may
    write to the parent could put a symlink to another folder under the name, which would then be given to the group.
    """
    staged = f"{name}.new-{secrets.token_hex(8)}"
    os.mkdir(staged, _PRIVATE_FOLDER, dir_fd=parent_fd)
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


def _is_folder(parent_fd: int | None, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _open_inner(root: str, names: Sequence[str]) -> Descriptor:
    """Open the folder that ``names`` lead to, each in the one before. The root itself may be a symlink."""
    # Nobody but the root's owner decides what is in front of the first name: one call does for both.
    path = f"{root}/{names[0]}" if names else root
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


def create_shared(folder_fd: int, name: str, gid: int | None = None) -> None:
    """Make an empty file for the group of its folder, or the one that is given. Raises :class:`FileExistsError`."""
    try:
        nameless = Descriptor()
        nameless.open(".", _NAMELESS, _PRIVATE_FILE, dir_fd=folder_fd)
        with nameless as fd:
            _give_to_group(fd, gid)
            # With a dir_fd Python calls linkat, which follows the link of /proc to the file without a name.
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder_fd, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        # This file system (NFS) has no files without a name, or there is no /proc. A death between the two calls then
        # leaves a file that other members cannot open; their error names it.
        with create_file(folder_fd, name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, is_shared=False) as fd:
            _give_to_group(fd, gid)


def _give_to_group(fd: int, gid: int | None) -> None:
    if gid is not None:
        os.fchown(fd, -1, gid)
    share_file(fd)

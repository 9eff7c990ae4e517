# SPDX-License-Identifier: Apache-2.0
"""Permissions: refuses directories into which somebody else could put a program, and those of a newer format.

A cache directory is code that will run on a GPU. So by default it is its owner's alone: one that somebody else owns or
may write to is an error that says how to fix it. A group shares one only where both sides say so: the directory by its
mode (setgid and writable by the group, 2770), and the program by ``group=`` or ``LOCKCACHE_GROUP``. Then files may
belong to any member, and must be of the directory's group; others are refused as usual.

Keeps the other half of invariant 7 (never take the job down): what is misconfigured is a clear error at opening.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from collections.abc import Callable
from typing import Final, NamedTuple

from lockcache.arguments import coerce_group
from lockcache.errors import FormatError, UnsafeCacheDirError
from lockcache.filestream.disk.files import read_small
from lockcache.filestream.disk.folders import PlantedFolderError, is_shared, make_shared_folder, share_folder
from lockcache.filestream.disk.layout import FORMAT_MAGIC, FORMAT_VERSION, Layout, version_of

_SHARD: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)


class Sharing(NamedTuple):
    """The sharing of a directory that an opener expects."""

    is_shared: bool
    #: The group, or ``None`` for whichever the directory has.
    gid: int | None = None


PRIVATE: Final = Sharing(False)


def resolve_sharing(group: bool | str | None) -> Sharing:
    """Returns the sharing that ``group=`` asks for; ``None``: ``$LOCKCACHE_GROUP``. Raises ValueError and TypeError."""
    wanted = coerce_group(group)
    return Sharing(True, _gid_of(wanted)) if isinstance(wanted, str) else Sharing(wanted)


def check_directory(layout: Layout, group: bool | str | None = None) -> None:
    """Refuse what opening would refuse, and make nothing.

    Raises :class:`UnsafeCacheDirError`, :class:`FormatError`, or :class:`NotADirectoryError`.
    """
    sharing = resolve_sharing(group)
    if os.path.lexists(layout.root) and not os.path.isdir(layout.root):
        raise NotADirectoryError(errno.ENOTDIR, "this is not a cache directory", layout.root)
    check_folders(layout, sharing)
    check_format(layout)


def check_folders(layout: Layout, sharing: Sharing) -> list[str]:
    """Refuse a root, or a folder below it, that is not as private, or not as shared, as its opener means it to be.

    Returns the folders that are missing, parents first: cuda.core's directories have no lockcache/. On a network file
    system, folders that others cannot reach are not checked, which would be seven calls to a server: missing ones are
    made with the page, or when a write fails on them.

    A symlink or a file in place of a folder is a :class:`NotADirectoryError`.
    """
    # The root itself may be reached through a symlink: that is its owner's choice.
    root = _look(layout.root, sharing, os.stat)
    if root is None:
        return list(layout.directories())
    if sharing.is_shared and sharing.gid is None:
        sharing = Sharing(True, root.st_gid)
    # Below a root through which others reach nothing, shards need not be checked each time.
    is_in_reach = root.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    if layout.is_network and not is_in_reach:
        return []
    missing = [path for path in layout.directories()[1:] if _look(path, sharing, is_folder=True) is None]
    for path in (layout.records, layout.views, layout.leases):
        _look(path, sharing)
    for path in _shards(layout) if is_in_reach else ():
        _look(path, sharing, is_shard=True)
    return missing


def make_shared_root(root: str, sharing: Sharing) -> None:
    """Make a root for its group, or share an existing one with it. Raises :class:`PermissionError` to a non-member."""
    try:
        if os.path.isdir(root):
            share_folder(root, sharing.gid)
        else:
            make_shared_folder(root, sharing.gid)
    except FileExistsError:
        return  # another process was faster
    except PermissionError as error:
        raise PermissionError(error.errno, f"{error.strerror}{_membership(sharing)}", root) from None


def make_root(path: str, sharing: Sharing = PRIVATE) -> None:
    """Make a cache directory and its parents, or open an empty one to its group.

    The root itself may be reached through a symlink: that is its owner's choice.
    """
    is_there = os.path.isdir(path)
    parent = os.path.dirname(path)
    if not is_there and parent and not os.path.isdir(parent):
        _make_directory(parent, 0o755)
    if sharing.is_shared:
        if not is_there or _is_unused(path):
            make_shared_root(path, sharing)
    elif not is_there:
        _make_directory(path, 0o700)


def _is_unused(path: str) -> bool:
    """Returns whether a directory is empty and one's own: made for this, by mkdir or by a death in front of the next
    call."""
    return not is_shared(path) and os.stat(path).st_uid == os.geteuid() and not os.listdir(path)


def _make_directory(path: str, mode: int) -> None:
    # Parents may be read by all, as mkdir -p has it, but whatever the umask not be written: a user who may write to a
    # parent can replace the root.
    parent = os.path.dirname(path)
    if parent not in ("", path) and not os.path.isdir(parent):  # a disk without an answer denies the root too
        _make_directory(parent, 0o755)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "this is not a cache directory", path) from None


def _membership(sharing: Sharing) -> str:
    if sharing.gid is None or _is_member(sharing.gid):
        return ""
    return f" (you are not a member of group {_name_of(sharing.gid)}: only one can make a directory for it)"


def _is_member(gid: int) -> bool:
    # Also of root, which may write anything: the question is whose programs it means to run.
    return gid in (os.getegid(), *os.getgroups())


def check_format(layout: Layout) -> None:
    """Refuse a directory of a newer format. Raises :class:`FormatError`, or :class:`OSError`."""
    try:
        # Looked at first: opening a device can do things.
        if not stat.S_ISREG(os.lstat(layout.state).st_mode):
            raise FormatError(f"{layout.state} is not a plain file; remove it", layout.state)
        refuse_newer(layout, read_small(layout, layout.state, len(FORMAT_MAGIC) + 1))
    except FileNotFoundError:
        return


def refuse_newer(layout: Layout, state: bytes) -> None:
    """Raise :class:`FormatError` if these first bytes of the state are of a newer version. Damage is none."""
    version = version_of(state)
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{layout.root} has format {version}, this lockcache knows up to {FORMAT_VERSION}: upgrade lockcache, or "
            "use another directory",
            layout.state,
        )


def _shards(layout: Layout) -> list[str]:
    """Returns the folders of shards: cuda.core makes them and the root as the umask says."""
    return [f"{path}/{name}" for path in (layout.entries, layout.records, layout.views) for name in _listdir(path)]


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _look(
    path: str,
    sharing: Sharing,
    look: Callable[[str], os.stat_result] = os.lstat,
    *,
    is_folder: bool = False,
    is_shard: bool = False,
) -> os.stat_result | None:
    """Returns the status of a folder, unless it is to be refused; ``None`` for one that is missing.

    ``is_folder``: anything else is refused in its place. Elsewhere only a symlink is, and a file among the shards is
    passed over.
    """
    try:
        status = look(path)
    except FileNotFoundError:
        return None
    mode = status.st_mode
    if stat.S_ISLNK(mode) or (is_folder and not stat.S_ISDIR(mode)):
        raise PlantedFolderError(path)
    # root may put anything anywhere already; trusting its directories adds nobody, and read-only caches are its.
    is_private = status.st_uid in (os.geteuid(), 0) and not mode & (stat.S_IWGRP | stat.S_IWOTH)
    if sharing.is_shared:
        wrong = _of_strangers(status, sharing) or _wrong_with_shared(path, status, sharing, is_shard)
    else:
        wrong = "" if is_private else _wrong(path, status)
    if wrong:
        raise UnsafeCacheDirError(f"{path} {wrong}", path)
    return status


def _wrong(path: str, status: os.stat_result) -> str:
    """Returns what is wrong with a folder that is not private, and the command that fixes it."""
    me, mode, quoted = os.geteuid(), status.st_mode, shlex.quote(path)
    if status.st_uid not in (me, 0):
        fix = (
            f"Use a directory of your own, or, if you trust what is in it, run: chown -R {me} {quoted}. Where another "
            "user makes it for you (an image, OpenShift's random uid), share it by a group: LOCKCACHE_GROUP=1 for both"
            if me
            else f"Run this command as its owner, {user_name(status.st_uid)}"
        )
        return f"belongs to uid {status.st_uid}, not to you (uid {me}): its owner could plant programs in it. {fix}"
    if mode & stat.S_ISVTX and mode & stat.S_IWOTH:
        own = shlex.quote(f"{path}/lockcache-{me}")
        return (
            f"(mode {stat.S_IMODE(mode):04o}) is a place for files of all users. Use a folder of your own in it: {own}"
        )
    shared = (
        ""
        if mode & stat.S_IWOTH
        else (
            f"If group {_name_of(status.st_gid)} shares it on purpose, say so: group=True, LOCKCACHE_GROUP=1 or "
            "--group. If not, "
        )
    )
    return (
        f"(mode {stat.S_IMODE(mode):04o}) may be written by other users, who could plant programs in it. "
        f"{shared}Run: chmod -R go-w {quoted}"
    )


def _wrong_with_shared(path: str, status: os.stat_result, sharing: Sharing, is_shard: bool) -> str:
    """Returns what is wrong with a folder that a group shares, and the command that fixes it."""
    mode, gid, quoted = status.st_mode, status.st_gid, shlex.quote(path)
    what = f"(mode {stat.S_IMODE(mode):04o}, group {_name_of(gid)})"
    if mode & stat.S_IWOTH:
        return f"{what} may be written by everybody, who could plant programs in it. Run: chmod -R o-w {quoted}"
    if sharing.gid is not None and gid != sharing.gid:
        wanted = _name_of(sharing.gid)
        return f"{what} belongs to another group than {wanted}, with which it is to be shared. Run: " + _fix(
            quoted, wanted
        )
    if is_shard:
        return ""  # cuda.core's folder has its umask's mode: a write that fails there is a harmless miss
    if not mode & stat.S_IWGRP or not mode & stat.S_ISGID:
        return (
            f"{what} is not shared with its group, as group=, LOCKCACHE_GROUP or --group asks for (2770 is wanted). "
            f"Open it without, or share all that is in it. Run: {_fix(quoted, _name_of(gid))}"
        )
    if mode & stat.S_ISVTX:
        return f"{what} is sticky: nobody could evict what others stored. Run: chmod -R -t {quoted}"
    return ""


def _of_strangers(status: os.stat_result, sharing: Sharing) -> str:
    """Returns what is wrong with a folder whose owner and whose group are both none of this process's.

    root, a member of few groups, has to name the group, or that of a root folder of its own counts: any user can have
    a folder of such a mode.
    """
    me, gid = os.geteuid(), status.st_gid
    if status.st_uid in (me, 0) or _is_member(gid) or (me == 0 and sharing.gid == gid):
        return ""
    return (
        f"belongs to uid {status.st_uid} and group {_name_of(gid)}, and you (uid {me}) are not a member of it: they "
        "could plant programs in it. Use a directory of your own, or become a member of the group"
        + (f", or name it: LOCKCACHE_GROUP={_name_of(gid)}" if me == 0 else "")
    )


def _fix(quoted: str, group: str) -> str:
    return (
        f"chgrp -R {shlex.quote(group)} {quoted} && chmod -R g+rwX,o-w {quoted} && "
        f"find {quoted} -type d -exec chmod g+s {{}} +"
    )


def _gid_of(group: str) -> int:
    import grp  # missing on Windows, and needed only for sharing

    if group.isascii() and group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ValueError(f"group (LOCKCACHE_GROUP): no group is called {group!r} here; see: getent group") from None


def _name_of(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def is_cache(layout: Layout) -> bool:
    """Returns whether a program began a cache there, for those that only inspect.

    A folder called ``lockcache``, such as in a checkout of this project, makes no cache. Nor are the directories of
    other programs that a daemon keeps, in which lockcache has other files. Raises :class:`OSError` for a directory that
    may not be listed.
    """
    return _is_there(layout.state) or _has_shards(layout.entries)


def _has_shards(entries: str) -> bool:
    """Returns whether ``entries/`` has shards, or nothing yet."""
    try:
        if not stat.S_ISDIR(os.lstat(entries).st_mode):
            return True  # something else is in its place, which opening the cache reports
        names = os.listdir(entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not names or any(map(_SHARD.fullmatch, names))


def _is_there(path: str) -> bool:
    # Not os.path.exists, which takes a directory that may not be searched for an empty one.
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def nearest_seen(path: str) -> str:
    """Returns ``path``, or the folder above it beyond which nothing can be seen."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def denial(path: str) -> str:
    """Returns in words why a path may not be used: its owner, or the folder that hides it, and the current user."""
    seen = nearest_seen(path)
    subject = "" if seen == path else f"{seen} is "
    return f"{path}: permission denied: {subject}{ownership(seen)}"


def ownership(path: str) -> str:
    """Returns ``owned by root (uid 0), mode 0700, and you are alice (uid 1000)``, for a path that can be seen."""
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    return f"owned by {user_name(status.st_uid)}, mode {mode:04o}, and you are {user_name(os.geteuid())}"


def user_name(uid: int) -> str:
    """Returns a user for people: ``alice (uid 1000)``, or the number alone where it has no account."""
    import pwd  # as grp above

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"

# SPDX-License-Identifier: Apache-2.0
"""Refusals of a daemon that runs as root: a directory that a group shares, or that another user owns.

Decides this in one place, for every layout and every kind of access. A user who may write to a directory may exchange
its folders between a check and the access that follows. With the user's own daemon that gains them nothing; with root's
daemon they could have any file overwritten. Such a directory is refused when it is opened. A directory that becomes one
later is left alone from the next tick on.

A daemon of root may keep root's own directories, which nobody else may write to.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from typing import Final

from lockcache.errors import UnsafeCacheDirError
from lockcache.filestream.disk import resolve_sharing

_PROGRAM: Final = "lockcache-daemon"
# Shown where no user can be named: the directory is root's, and its group has no members that this host knows.
_SOMEBODY: Final = "MEMBER"


def refuse_as_root(root: str, group: bool | str) -> None:
    """Raise :class:`UnsafeCacheDirError` if we are root and others may write to ``root``, or will with ``group``."""
    if os.geteuid() != 0:
        return
    wanted = resolve_sharing(group)
    try:
        status = os.stat(root)
    except (FileNotFoundError, NotADirectoryError):
        if wanted.is_shared:
            raise _error(root, "is to be shared with a group", 0, wanted.gid) from None
        return
    gid = status.st_gid if wanted.gid is None else wanted.gid
    is_shared = bool(status.st_mode & stat.S_IWGRP)
    if status.st_uid:
        owner = _user(status.st_uid)
        why = f"belongs to uid {status.st_uid}{f' ({owner})' if owner else ''}"
        raise _error(root, why, status.st_uid, gid if is_shared else None)
    # A directory that everybody may write to is refused by opening it, with a message of its own.
    if is_shared and not status.st_mode & stat.S_IWOTH:
        fix = f"if not on purpose, fix that: chmod -R g-w {shlex.quote(root)}"
        raise _error(root, f"is shared with group {_group(status.st_gid) or status.st_gid} ({fix})", 0, gid)
    if wanted.is_shared:
        raise _error(root, "is to be shared with a group", 0, gid)


def _error(root: str, why: str, uid: int, gid: int | None) -> UnsafeCacheDirError:
    return UnsafeCacheDirError(
        f"{root} {why}, and this daemon runs as root: another user who may write there could make it write anywhere. "
        f"Start the daemon as such a user. Run: {shlex.join([*_as_user(uid, gid), '--', *_command()])}",
        root,
    )


def _as_user(uid: int, gid: int | None) -> list[str]:
    """Returns the program and options that run a command as ``uid``, or, if ``uid`` is root, as a member of the group.

    ``gid`` is the group of a shared directory.
    """
    user = _user(uid) if uid else _member(gid)
    group = "" if gid is None else _group(gid)
    if user and (group or gid is None):
        return ["runuser", "-u", user, *(["-g", group] if group else [])]
    # runuser takes names of accounts only, not numbers.
    return ["setpriv", f"--reuid={user or uid}", f"--regid={uid if gid is None else gid}", "--clear-groups"]


def _command() -> list[str]:
    program, *arguments = sys.argv
    return [program if os.path.basename(program) == _PROGRAM else _PROGRAM, *arguments]


def _user(uid: int) -> str:
    """Returns the account's name; empty if this host knows none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _member(gid: int | None) -> str:
    import grp
    import pwd

    members = [] if gid is None or not _group(gid) else [name for name in grp.getgrgid(gid).gr_mem if name != "root"]
    members += [each.pw_name for each in pwd.getpwall() if each.pw_uid and each.pw_gid == gid]
    return members[0] if members else _SOMEBODY

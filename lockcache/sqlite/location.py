# SPDX-License-Identifier: Apache-2.0
"""Location of the database: whether it is safe to open, and how a damaged one is set aside.

Decides which files are refused. A cache is code that will run on a GPU, so a database that somebody else owns, may
write to, or may replace is an error that says how to fix it (the other half of invariant 7, never take the job down:
what is misconfigured is a clear error at opening). Relied on by :mod:`.connection`. Not promised: safety from a user
who changes owners or modes between this check and SQLite's open.

Nothing here opens an existing database, not even to ask whether it may be written: when a process closes any descriptor
of a file, the kernel drops all its POSIX locks on that file, those of SQLite's connections among them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shlex
import stat
import threading
import time
from typing import Final, NamedTuple

from lockcache.errors import UnsafeCacheDirError

_log = logging.getLogger("lockcache")

#: The database in a directory that nobody named.
FILE_NAME: Final = "programs.sqlite3"
WAL_SUFFIX: Final = "-wal"
# The files that SQLite keeps next to the database. A planted one would be read as a part of it.
_SIDE_SUFFIXES: Final = (WAL_SUFFIX, "-shm", "-journal")

# On Windows descriptors are not inherited anyway, and O_EXCL follows nothing.
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# Windows has access lists, which modes do not show; a user's own folders are private there.
_HAS_MODES: Final = hasattr(os, "geteuid")

# Two threads that find the same damage must not set the new file of one aside for it.
_setting_aside = threading.RLock()


class Identity(NamedTuple):
    """The file that a path leads to."""

    device: int
    inode: int


def prepare(path: str) -> None:
    """Make the file (mode 0600) and its directory (0700) unless they are there, and refuse what is unsafe.

    Raises :class:`UnsafeCacheDirError`, :class:`IsADirectoryError`, or the :class:`OSError` of what cannot be made.
    """
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another process was faster; if it is not a directory, stat says so
            os.mkdir(directory, 0o700)
    _check_directory(directory)
    for file in (path, *(path + suffix for suffix in _SIDE_SUFFIXES)):
        _check_file(file)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, _NEW, 0o600))


def identify(path: str) -> Identity | None:
    """Returns the file that ``path`` leads to now, or ``None``."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return Identity(status.st_dev, status.st_ino)


def is_writable(path: str) -> bool:
    """Returns whether a database can be written: the file, and its directory for the files next to it."""
    return os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)


def denied(path: str) -> OSError:
    """Returns the error for a write to a database that may not be written: EROFS or EACCES, like a file's own."""
    if _HAS_MODES and os.statvfs(os.path.dirname(path)).f_flag & os.ST_RDONLY:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
    return PermissionError(errno.EACCES, "this cache may only be read", path)


def set_aside(path: str, seen: Identity | None) -> None:
    """Rename the ruined database ``seen``, and the files next to it, to a name that nothing else has.

    Does nothing if ``path`` leads to another file by now: another process or thread has begun a new one. Raises
    :class:`OSError`.
    """
    with _setting_aside:
        if seen is None or identify(path) != seen:
            return
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        aside = f"{path}.corrupt-{when}-{secrets.token_hex(4)}"
        os.rename(path, aside)
        # The database first: SQLite discards a log that it finds next to a new, empty database.
        for suffix in _SIDE_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + suffix, aside + suffix)
    _log.warning("%s is damaged and was set aside as %s; a new cache begins", path, aside)


def _check_directory(path: str) -> None:
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    _check_owner(path, status)
    # Others may add files to a sticky directory (/tmp), and the group to one of its own (umask 002 makes all of them
    # so); what they put in our files' places has another owner, which _check_file sees.
    if not status.st_mode & stat.S_ISVTX:
        _check_mode(path, status, stat.S_IWOTH)


def _check_file(path: str) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "the database's file is wanted here", path)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeCacheDirError(f"{path} is a symbolic link or no regular file; name the file itself", path)
    _check_owner(path, status)
    _check_mode(path, status, stat.S_IWGRP | stat.S_IWOTH)


def _check_owner(path: str, status: os.stat_result) -> None:
    if not _HAS_MODES:
        return
    me = os.geteuid()
    # root may put anything anywhere already; trusting its files adds nobody.
    if status.st_uid not in (me, 0):
        raise UnsafeCacheDirError(
            f"{path} belongs to uid {status.st_uid}, not to you (uid {me}): its owner could plant programs in it. "
            f"Use a path of your own, or, if you trust what is in it, run: chown {me} {shlex.quote(path)}",
            path,
        )


def _check_mode(path: str, status: os.stat_result, forbidden: int) -> None:
    if _HAS_MODES and status.st_mode & forbidden:
        raise UnsafeCacheDirError(
            f"{path} (mode {stat.S_IMODE(status.st_mode):04o}) may be written by other users, who could plant "
            f"programs in it. Run: chmod go-w {shlex.quote(path)}",
            path,
        )

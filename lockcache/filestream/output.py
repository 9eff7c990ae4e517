# SPDX-License-Identifier: Apache-2.0
"""Files that users name, such as bundles and manifests: each appears whole or not at all.

Keeps invariant 5 (death is free) for them: a death, a full disk or Ctrl-C leaves the file that was there before, and at
most a hidden file next to it that says in its name what it was. Processes that add to one file take turns by a hidden
lock file next to it (:func:`turn_to_replace`), which stays there. Every user who may replace the file may lock it: its
owner, and the folder's group if that may write to the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import stat
import time
from collections.abc import Iterator
from typing import BinaryIO, Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import PRIVATE_FILE, UPDATE, Hold, ProcessLock, create_shared, naming, opened

#: For how long a process that adds to a file waits for others, each of which writes the whole file.
WAIT_FOR_TURN_SECONDS: Final = 600.0

# Between two tries, each of which may be a call to a file server.
_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 1.0

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Turn:
    """A turn to replace one file. The file as it stands when this is made is the one to replace."""

    def __init__(self, path: str, lock: ProcessLock | None) -> None:
        """``lock``: the one that is held; ``None`` where the file system has none."""
        self._path = path
        self._lock = lock
        self._before = _identify(path)

    def refuse_if_lost(self) -> None:
        """Raise :class:`LockTimeoutError` if another process had a turn meanwhile, whose work would be lost.

        The lock file was deleted or replaced, or the file itself was replaced: by a process that takes no turns, or on
        another host, if the mount's locks are local to each host.
        """
        if (self._lock is not None and self._lock.is_lost()) or _identify(self._path) != self._before:
            what = "it was replaced meanwhile, or its lock file was; run this again"
            raise LockTimeoutError(f"{self._path}: {what}", self._path)


@contextlib.contextmanager
def turn_to_replace(
    path: str, seconds: float = WAIT_FOR_TURN_SECONDS, *, needs_lock: bool = True
) -> Iterator[Turn | None]:
    """Let no other process add to the file at ``path`` in this block, on any host that shares locks with this one.

    ``needs_lock=False``: a file system that refuses to lock has no others who take turns, and the block goes on.
    ``None`` for a device or FIFO, which nothing replaces.

    Waits for ``seconds`` at most. Raises :class:`LockTimeoutError`, and :class:`OSError`, also for a missing folder.
    """
    path = os.path.abspath(path)
    folder, name = os.path.split(path)
    os.stat(folder)  # which a lock would make
    if os.path.exists(path) and not os.path.isfile(path):
        yield None
        return
    lock = _TurnLock(os.path.join(folder, f".{name}.lock"), 0.0)
    hold = None
    try:
        hold = _hold(lock, path, seconds, needs_lock=needs_lock)
        yield Turn(path, None if hold is None else lock)
    finally:
        if hold is not None:
            hold.release()
        lock.close()


class _TurnLock(ProcessLock):
    """A lock file next to the file that is replaced, for all users who may replace that."""

    __slots__ = ()

    def _open(self) -> int:
        # Without O_CREAT first: in folders with the sticky bit the kernel refuses it for files of others.
        try:
            return self._file.open(self.path, UPDATE)
        except FileNotFoundError:
            pass  # made below, where an interrupt finds no other exception under way
        folder, name = os.path.split(self.path)
        status = os.stat(folder)
        if status.st_mode & stat.S_IWGRP and _may_give(status):
            with contextlib.suppress(FileExistsError), opened(folder, _FOLDER) as folder_fd:
                create_shared(folder_fd, name, status.st_gid)
        return self._file.open(self.path, UPDATE | os.O_CREAT, PRIVATE_FILE)


def _may_give(folder: os.stat_result) -> bool:
    """Returns whether this process may give a file that it makes in a folder to the folder's group."""
    ours = {os.getegid(), *os.getgroups()}
    return bool(folder.st_mode & stat.S_ISGID) or folder.st_gid in ours or os.geteuid() == 0


def _hold(lock: ProcessLock, path: str, seconds: float, *, needs_lock: bool) -> Hold | None:
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while True:
        try:
            hold = lock.try_hold()
        except LockTimeoutError:  # this file system refuses to lock: a wait for a holder returns None
            if needs_lock:
                raise
            return None
        if hold is not None:
            return hold
        if time.monotonic() > until:
            raise LockTimeoutError(f"{path}: others have added to it for {seconds:.0f} s ({lock.path})", lock.path)
        time.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _identify(path: str) -> tuple[int, int, int, int] | None:
    """Returns what distinguishes one file at a path from the next; ``None`` if there is no file.

    A client of a network file system remembers names. Opening the folder makes it ask the server.
    """
    with contextlib.suppress(OSError), opened(os.path.dirname(path), _FOLDER):
        pass
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def open_output(path: str, *, is_users_choice: bool = True, turn: Turn | None = None) -> Iterator[BinaryIO]:
    """Yields a file that replaces ``path`` if the block ends without an error. Devices and FIFOs are written in place.

    Made with mode 0600: what was private in a cache directory stays so. A file that replaces another gets its group and
    permission to read; if it cannot be given to that group, the group may not read it. A symlink stays, and its target
    is replaced. ``is_users_choice=False``: for what a program writes that nobody watches, nothing but a plain file is
    replaced; raises :class:`OSError` for all else. With a ``turn`` that was lost meanwhile nothing is replaced: raises
    :class:`LockTimeoutError`.
    """
    target = os.path.realpath(path) if is_users_choice else os.path.abspath(path)
    try:
        status = os.stat(target, follow_symlinks=is_users_choice)
        mode, gid = status.st_mode, status.st_gid
    except FileNotFoundError:
        mode, gid = stat.S_IFREG | 0o600, None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it must be a file", path)
    if not is_users_choice and not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a plain file", path)
    with naming(path):
        if stat.S_ISREG(mode):
            yield from _replace(target, path, mode & 0o644 | 0o600, gid, turn)
        else:
            with open(target, "wb") as device:
                yield device


def _replace(target: str, path: str, mode: int, gid: int | None, turn: Turn | None) -> Iterator[BinaryIO]:
    folder, name = os.path.split(target)
    # Known before it is made: an interrupt that comes right behind its creation must find it here.
    staged = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")
    try:
        with _create(staged, path) as file:
            yield file
            file.flush()
            _share_as(file.fileno(), mode, gid)
            os.fsync(file.fileno())
        if turn is not None:
            turn.refuse_if_lost()
        os.rename(staged, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the error that brought us here says more
            os.unlink(staged)
        raise


def _share_as(fd: int, mode: int, gid: int | None) -> None:
    """Give a file that this process made a mode, and a group if it is to have another one. The group first."""
    if gid is not None and os.fstat(fd).st_gid != gid:
        try:
            os.fchown(fd, -1, gid)
        except OSError:  # not a member of it; and the process's own group could not read the older file
            mode &= ~stat.S_IRWXG
    os.fchmod(fd, mode)


def _create(staged: str, path: str) -> BinaryIO:
    try:
        return open(staged, "xb", opener=_open_private)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # not under a name that nobody knows


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

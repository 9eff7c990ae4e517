# SPDX-License-Identifier: Apache-2.0
"""Last use of an entry: how a hit states it, and how an evictor reads it.

Decides: last use = max(atime, mtime); a hit sets both to now. On a local file system to this process's clock, since
the kernel's own "now" ticks every 1 to 10 ms and entries used within one tick would be in no order. As a float, whose
steps are 0.24 us in this century: a hit takes thirty of them, and integers of nanoseconds are 0.15 us slower.
Where that is refused (setting a time needs ownership; a group member may only say "now"), and on network file systems
(one server clock for all clients), the plain "now"; there at most once a minute per entry, a round trip each.

A time that is still to come is a clock's mistake, or an archive's, and is not believed: the file system's own record of
the last change (ctime, which no program can set) is, and an evictor that finds that one in the future too writes the
present over it. So such an entry counts as used now, and ages like the others.

Keeps invariant 7 (never take the job down): a read-only mount or someone else's file is a hit like any other, only
without recency.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from typing import Final

from lockcache.filestream.disk.mounts import is_network

_NETWORK_INTERVAL_NS: Final = 60 * 10**9

# Looked up once, for the read path.
_utime, _time, _time_ns = os.utime, time.time, time.time_ns


def last_use_ns(status: os.stat_result) -> int:
    """Returns when an entry was last stored or read, in ns since the epoch; for a time to come, when that was set."""
    used_ns = max(status.st_atime_ns, status.st_mtime_ns)
    return used_ns if used_ns <= _time_ns() else min(used_ns, status.st_ctime_ns)


def restate(
    tmp: str, folder_fd: int, name: str, status: os.stat_result, *, keeps_order: bool = False
) -> os.stat_result:
    """Date a file to now whose last use, even as the file system recorded it, is to come. Returns its new status.

    A clock was ahead when the file was used, and was set back since. ``tmp`` is the cache's folder of staged files, by
    which a file server is known whose clock is ahead of this host's, and right. With ``keeps_order`` the mtime stays,
    which states in directories of other programs in which order files were written; the change itself is what is
    recorded. Raises nothing: a file that may not be dated stays as it is.
    """
    if last_use_ns(status) <= present_ns(tmp) or status.st_nlink != 1 or not stat.S_ISREG(status.st_mode):
        return status
    now_ns = _time_ns()
    times = now_ns, status.st_mtime_ns if keeps_order else now_ns
    with contextlib.suppress(OSError):
        os.utime(name, ns=times, dir_fd=folder_fd, follow_symlinks=False)
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    return status


def present_ns(folder: str) -> int:
    """Returns the present by the one that is ahead: this host's clock, or that of a folder's last change."""
    now_ns = int(time.time() * 1e9)
    with contextlib.suppress(OSError):
        return max(now_ns, os.stat(folder).st_ctime_ns)
    return now_ns


class Recency:
    """States the use of entries under one directory. ``touch(fd)`` says that the open entry was used now.

    ``touch(fd, status)`` spares a round trip on a network file system, where ``status`` is from before the read: a read
    makes the client forget the file's times.
    """

    __slots__ = ("_is_network", "_root", "failures", "is_exact", "touch", "touch_new")

    def __init__(self, root: str, is_network: bool | None = None) -> None:
        """``is_network``: whether the root is on a network file system; ``None``: to be found out at the first use."""
        self._root = root
        self._is_network = is_network
        #: Uses that could not be stated.
        self.failures = 0
        #: Whether uses are stated by our clock, and the last one was accepted: a reader may then state them itself.
        self.is_exact = False
        #: Never raises. Bound to the calls that this file system accepts, as the first uses show.
        self.touch: Callable[..., None] = self._touch_first
        #: States the use of a file that was just made. On a network file system its server has done so.
        self.touch_new: Callable[[int], None] = self._touch_first

    def _touch_first(self, fd: int, status: os.stat_result | None = None) -> None:
        if self._is_network is None:
            self._is_network = is_network(self._root)
        self.touch = self._touch_seldom if self._is_network else self._touch_exactly
        self.touch_new = _touch_nothing if self._is_network else self._touch_exactly
        self.touch(fd, status)

    def _touch_exactly(self, fd: int, _: os.stat_result | None = None) -> None:
        now = _time()
        try:
            _utime(fd, (now, now))
            self.is_exact = True
        except OSError as error:
            self.is_exact = False
            if error.errno in (errno.EPERM, errno.EACCES):
                self.touch = self._touch_now
                self._touch_now(fd)
            else:
                self.failures += 1

    def _touch_now(self, fd: int, _: os.stat_result | None = None) -> None:
        try:
            _utime(fd)
        except OSError:
            self.failures += 1

    def _touch_seldom(self, fd: int, status: os.stat_result | None = None) -> None:
        try:
            recent = _time_ns() - last_use_ns(status or os.fstat(fd)) < _NETWORK_INTERVAL_NS
        except OSError:
            self.failures += 1
            return
        if not recent:
            self._touch_now(fd)


class ReadRecency(Recency):
    """Recency by the atime alone, for other programs' files, whose mtimes state in which order they were written.

    An mtime that changes between our stat and our call is set back by that call, never forward: files written in order
    may then look out of order (a miss), never the reverse.
    """

    __slots__ = ()

    def _touch_exactly(self, fd: int, _: os.stat_result | None = None) -> None:
        try:
            _utime(fd, ns=(_time_ns(), os.fstat(fd).st_mtime_ns))
        except OSError:
            self.failures += 1

    _touch_now = _touch_exactly


class UnstatedRecency(Recency):
    """Like :class:`Recency`, for programs that change nothing: states no uses."""

    __slots__ = ()

    def _touch_first(self, fd: int, _: os.stat_result | None = None) -> None:
        return


def _touch_nothing(fd: int, _: os.stat_result | None = None) -> None:
    """Leave the times of a file as they are."""

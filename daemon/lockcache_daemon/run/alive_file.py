# SPDX-License-Identifier: Apache-2.0
"""The file of ``--alive-file``, touched for as long as the daemon is at work: for probes that run a command.

Promises that the file's age shows what the service manager's watchdog would see: progress is reported between the steps
of the work, so a daemon that hangs lets the file grow old, and a daemon that ended leaves none. The file is there once
the directories are kept. So a liveness probe needs no port, which others could reach.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Final

from lockcache.errors import LockcacheError, in_words
from lockcache_daemon.observe import Board, shown

# Progress is reported at least so often; see StopSignals.
_INTERVAL_SECONDS: Final = 10.0
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class AliveFileError(LockcacheError):
    """The file cannot be made; the message says which file, and why."""


class AliveFile:
    """The file, from :meth:`start` to :meth:`close`. Raises :class:`AliveFileError` where it cannot be made."""

    def __init__(self, path: str, board: Board) -> None:
        self._path = path
        self._board = board
        self._due = 0.0
        _remove(_make(path))  # a killed daemon's file would say that we are well while we still count

    def start(self) -> None:
        """Make the file, and touch it from now on. Raises :class:`AliveFileError`."""
        _make(self._path)
        self._board.beats.append(self._beat)

    def close(self) -> None:
        if self._beat in self._board.beats:  # else it was not started
            self._board.beats.remove(self._beat)
            _remove(self._path)

    def _beat(self) -> None:
        """Touch the file, from any thread at work. By its path, because a reload could close a descriptor meanwhile."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_SECONDS
            try:
                os.utime(self._path, follow_symlinks=False)
            except FileNotFoundError:  # such as removed by a second daemon, which found us here and ended
                with contextlib.suppress(OSError):
                    os.close(os.open(self._path, _NEW, 0o644))
            except OSError:
                return  # somebody put something else there; the probe sees that


def _make(path: str) -> str:
    _remove(path)
    try:
        os.close(os.open(path, _NEW, 0o644))
    except OSError as error:
        why = error.strerror or in_words(error)
        raise AliveFileError(f"cannot make the file of --alive-file, {shown(path)}: {why}") from error
    return path


def _remove(path: str) -> None:
    """Remove the file if it is plain and empty, or a symlink. Anything else stays."""
    with contextlib.suppress(OSError):  # there is no such file, or the error of making it says why
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size):
            os.unlink(path)

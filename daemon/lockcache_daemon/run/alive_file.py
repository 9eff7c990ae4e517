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
from collections.abc import Sequence
from typing import Final

from lockcache.errors import LockcacheError, in_words
from lockcache_daemon.keeper import Keeper
from lockcache_daemon.observe import Report, shown
from lockcache_daemon.settings import Settings

# Progress is reported at least so often; see StopSignals.
_INTERVAL_SECONDS: Final = 10.0
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class AliveFileError(LockcacheError):
    """The file cannot be made; the message says which file, and why."""


class AliveService:
    """The file of ``--alive-file`` (a :class:`.services.Service`)."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._wanted = settings.alive_file
        self._report = report
        self._path: str | None = None
        self._due = 0.0
        if self._wanted is not None:  # a killed daemon's file would say that we are well while we still count
            _remove(self._wanted)

    def prepare(self) -> None:
        """Try to make the file. Raises :class:`AliveFileError`."""
        if self._wanted is not None:
            _remove(_make(self._wanted))

    def open(self, keepers: Sequence[Keeper]) -> None:
        """Make the file, and touch it from now on. Raises :class:`AliveFileError`."""
        if self._wanted is not None:
            self._path = _make(self._wanted)
        board = self._report.board
        others = board.on_beat

        def both() -> None:
            others()
            self._beat()

        board.on_beat = both

    def tick(self) -> None:
        """Do nothing: the work itself reports progress."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Change to another file. If that cannot be made, the file before it stays in use."""
        wanted = settings.alive_file
        if wanted == self._path:
            return
        before = self._path
        try:
            self._path = None if wanted is None else _make(wanted)
        except AliveFileError as error:
            self._report.not_served(str(error))
            return
        if before is not None:
            _remove(before)

    def close(self) -> None:
        before, self._path = self._path, None
        if before is not None:
            _remove(before)

    def _beat(self) -> None:
        """Touch the file, from any thread at work. By its path, because a reload could close a descriptor meanwhile."""
        path = self._path
        if path is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_SECONDS
            try:
                os.utime(path, follow_symlinks=False)
            except FileNotFoundError:  # such as removed by a second daemon, which found us here and ended
                with contextlib.suppress(OSError):
                    os.close(os.open(path, _NEW, 0o644))
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

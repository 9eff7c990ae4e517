"""A file that is touched for as long as the daemon is at work: for probes that run a command next to it.

Promises that its age says what the service manager's watchdog would see: progress is reported between the steps
of the work, so who hangs lets it grow old, and who ended leaves none. It is there once the directories are kept. So a
probe of liveness needs no port, which others can reach.
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

# Progress is reported at least that often; see StopSignals.
_INTERVAL_SECONDS: Final = 10.0
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class AliveFileError(LockcacheError):
    """The file cannot be made; the message says which and why."""


class AliveService:
    """The file of ``--alive-file``. As :class:`.services.Service`."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._wanted = settings.alive_file
        self._report = report
        self._path: str | None = None
        self._due = 0.0
        if self._wanted is not None:  # a killed daemon's, which would say that we are well while we still count
            _remove(self._wanted)

    def prepare(self) -> None:
        """Try to make it. Raises :class:`AliveFileError`."""
        if self._wanted is not None:
            _remove(_make(self._wanted))

    def open(self, keepers: Sequence[Keeper]) -> None:
        """Raises :class:`AliveFileError`."""
        if self._wanted is not None:
            self._path = _make(self._wanted)
        board = self._report.board
        others = board.on_beat

        def both() -> None:
            others()
            self._beat()

        board.on_beat = both

    def tick(self) -> None:
        """Nothing: progress is reported by the work itself."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """A file that cannot be made leaves the one before it in use."""
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
        """Called by whatever thread is at work: not by a descriptor, which a reload might close in between."""
        path = self._path
        if path is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_SECONDS
            try:
                os.utime(path, follow_symlinks=False)
            except FileNotFoundError:  # such as by a second daemon, which found us here and ended
                with contextlib.suppress(OSError):
                    os.close(os.open(path, _NEW, 0o644))
            except OSError:
                return  # somebody put something else there; that is seen


def _make(path: str) -> str:
    _remove(path)
    try:
        os.close(os.open(path, _NEW, 0o644))
    except OSError as error:
        why = error.strerror or in_words(error)
        raise AliveFileError(f"cannot make the file that says we are alive, {shown(path)}: {why}") from error
    return path


def _remove(path: str) -> None:
    """Remove such a file: a plain one with nothing in it, or a symlink. Anything else is left alone."""
    with contextlib.suppress(OSError):  # there is none, or making it says why not
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size):
            os.unlink(path)

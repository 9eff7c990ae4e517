# SPDX-License-Identifier: Apache-2.0
"""Recorder: the keys that this process looked up, for ``$LOCKCACHE_MANIFEST``, or missed once it was sealed.

Keeps the cost of a hit: a lookup adds its key to a set in memory, and makes no system call for it. The set goes into
the file when the process ends, and with the counters once half a minute has passed, so that of a job that is killed
most is known. Keeps invariant 7 (never take the job down): what cannot be written is a warning, once.

Not promised: the keys since the last write of a process that is killed, or ends by ``os._exit`` itself; and keys beyond
the number that a manifest holds.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from lockcache.errors import LockTimeoutError, in_words
from lockcache.remote.manifest.file import add_to_manifest
from lockcache.remote.manifest.text import MOST_KEYS
from lockcache.reports import reports

__all__ = ["Recorder", "recorder_of"]

_log = logging.getLogger("lockcache")

_INTERVAL_SECONDS: Final = 30.0
# The wait for others, each of which reads and writes some KiB. Most of a job's processes have nothing to add by then.
_WAIT_SECONDS: Final = 5.0


class Recorder:
    """The keys that this process looked up, and the file that lists them. Any thread may use it."""

    def __init__(self, path: str, stated_as: str = "LOCKCACHE_MANIFEST") -> None:
        """``stated_as``: what warnings call the file."""
        self.path, self._stated_as = path, stated_as
        self.keys: set[str] = set()
        self._listed: frozenset[str] = frozenset()
        self._has_warned = False
        self.restart()

    def restart(self) -> None:
        """Begin again in a forked child."""
        # The parent's keys stay: the child finds them in the file, or adds them if the parent was killed.
        self._writing = threading.Lock()
        self._due = time.monotonic() + _INTERVAL_SECONDS

    def note(self, name: str) -> None:
        """Remember a name that was looked up."""
        if len(self.keys) < MOST_KEYS:
            self.keys.add(name)

    def record(self, name: str) -> None:
        """Remember a name, and put it into the file at once unless somebody is at it. Raises nothing.

        For what is rare: else :meth:`note`.
        """
        self.note(name)
        self._add(0.0)

    def report(self, patience_seconds: float = 0.0) -> None:
        """Put into the file what it lacks, if it is time for that and nobody else is at it. Raises nothing."""
        if time.monotonic() >= self._due:
            self._add(0.0)

    def report_patiently(self) -> None:
        """Put into the file what it lacks. Waits for others who are at it. Raises nothing."""
        self._add(_WAIT_SECONDS)

    def _add(self, wait_seconds: float) -> None:
        # Never waited for: this may run in the garbage collector, in the thread that is at it.
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._due = time.monotonic() + _INTERVAL_SECONDS
            keys = frozenset(self.keys)
            if keys <= self._listed:
                return
            self._listed = add_to_manifest(self.path, keys, wait_seconds)
            if not keys <= self._listed:
                self._warn(f"{self.path}: it lists {MOST_KEYS} keys, and so no more of them; remove it to begin again")
                self._listed |= keys
        except LockTimeoutError as error:
            if wait_seconds:
                self._warn(f"{self._stated_as}: {in_words(error)}")
        except (OSError, ValueError) as error:
            self._warn(f"{self._stated_as}: {in_words(error)}")
        finally:
            self._writing.release()

    def _warn(self, words: str) -> None:
        _log.log(logging.DEBUG if self._has_warned else logging.WARNING, "%s", words)
        self._has_warned = True


_recorders: Final[dict[str, Recorder]] = {}


def recorder_of(path: str, stated_as: str = "LOCKCACHE_MANIFEST") -> Recorder:
    """Returns the recorder of a file, one for all caches of this process. It last writes when the process ends."""
    if path not in _recorders:
        recorder = _recorders.setdefault(path, Recorder(path, stated_as))
        reports.add(recorder, recorder)
    return _recorders[path]

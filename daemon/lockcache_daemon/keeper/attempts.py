# SPDX-License-Identifier: Apache-2.0
"""Attempts: steps for one directory, each of which may fail without effect on the others.

Keeps invariant 7 (never take the job down) for the daemon: an error is reported once for each kind, until all steps
have worked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from lockcache.errors import LockcacheError, LockTimeoutError
from lockcache_daemon.observe import Report
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import Step

T = TypeVar("T")


class Attempts:
    """Steps that stand alone, tried for one directory, and the kinds of error that were reported."""

    def __init__(self, root: str, report: Report, stop: StopSignals) -> None:
        self._root = root
        self._report = report
        self._stop = stop
        self._reported: set[tuple[str, int | None]] = set()
        self._failures = 0
        #: Whether an error may have left something half usable. Whatever reads it clears it.
        self.is_shaken = False

    @property
    def is_well(self) -> bool:
        """Whether no step failed, or all steps have worked since."""
        return not self._reported

    def make(self, step: Callable[[], T]) -> T | None:
        """Take one step, unless the daemon is to stop. Returns its result; ``None`` if it failed or was not taken.

        Raises only :class:`Stopped`.
        """
        if not self._stop.is_set():
            try:
                with self._report.board.at_work(self._root):
                    return step()
            except (OSError, LockcacheError) as error:
                self.note(error)
        return None

    def make_all(self, steps: Iterable[Step]) -> None:
        """Take each of ``steps``, also after one that failed. If all work again, report the recovery."""
        before = self._failures
        for step in steps:
            self.make(step)
        if self._reported and self._failures == before and not self._stop.is_set():
            self._reported.clear()
            self._report.recovered(self._root)

    def note(self, error: Exception) -> None:
        """Report ``error``, unless an error of its kind was reported since this directory last worked."""
        self._failures += 1
        self._report.failing(self._root, error)
        self.is_shaken |= not isinstance(error, LockTimeoutError)
        kind = (type(error).__name__, error.errno if isinstance(error, OSError) else None)
        if kind not in self._reported:
            self._reported.add(kind)
            self._report.failed(self._root, error)

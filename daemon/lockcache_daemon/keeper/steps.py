"""Steps that stand alone: one that fails is said once, and tried again at the next tick.

Keeps invariant 7 (never take the job down) for the daemon itself, whatever it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lockcache.errors import LockcacheError, LockTimeoutError
from lockcache_daemon.observe import Report
from lockcache_daemon.signals import StopSignals


class Attempts:
    """What was tried for one directory, and which kinds of error were said."""

    def __init__(self, root: str, report: Report, stop: StopSignals) -> None:
        self._root = root
        self._report = report
        self._stop = stop
        self._told: set[tuple[str, int | None]] = set()
        #: Whether an error may have left something half usable. Its reader clears it.
        self.is_shaken = False

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, or all has worked since."""
        return not self._told

    def take(self, step: Callable[[], object]) -> bool:
        """Take one step, unless the daemon is to stop. Whether it did not fail. Raises only :class:`Stopped`."""
        if self._stop.is_set():
            return True
        try:
            with self._report.board.at_work(self._root):
                step()
        except (OSError, LockcacheError) as error:
            self.note(error)
            return False
        return True

    def take_all(self, steps: Iterable[Callable[[], object]]) -> None:
        """Each of them, also after one that failed; if all work again, that is said."""
        outcomes = [self.take(step) for step in steps]
        if all(outcomes) and self._told:
            self._told.clear()
            self._report.recovered(self._root)

    def note(self, error: Exception) -> None:
        """Say it, unless an error of its kind was said since this directory last worked."""
        self._report.failing(self._root, error)
        self.is_shaken |= not isinstance(error, LockTimeoutError)
        kind = (type(error).__name__, error.errno if isinstance(error, OSError) else None)
        if kind not in self._told:
            self._told.add(kind)
            self._report.failed(self._root, error)

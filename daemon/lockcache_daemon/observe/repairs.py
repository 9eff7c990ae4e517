"""Repairs of the accounting: how far it was off, and when that is worth a line in the log.

Keeps drift from being repaired in silence, and a log readable next to programs that do not account (cuda.core's own
cache), where there is drift at every tick: lines come a minute apart at first, and an hour apart after a while.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from lockcache.lowlevel import Repair

_FIRST_PAUSE_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0


class Repairs(NamedTuple):
    """Accounting that was wrong and was set right."""

    shards: int = 0
    #: In either direction.
    drift_bytes: int = 0
    #: Of those, what was on disk and not accounted for; the rest was accounted for and not there.
    missing_bytes: int = 0
    #: Entries, in either direction.
    drift_entries: int = 0

    def plus(self, repair: Repair) -> Repairs:
        drift_bytes = repair.drift_bytes
        return Repairs(
            self.shards + 1,
            self.drift_bytes + abs(drift_bytes),
            self.missing_bytes + max(0, -drift_bytes),
            self.drift_entries + abs(repair.before.entries - repair.after.entries),
        )

    def since(self, before: Repairs) -> Repairs:
        return Repairs(*(now - then for now, then in zip(self, before, strict=True)))


class UnreportedRepairs:
    """Repairs that have not been reported yet."""

    def __init__(self) -> None:
        self._said = Repairs()
        self._pause = _FIRST_PAUSE_SECONDS
        self._due = 0.0

    def take(self, repairs: Repairs) -> Repairs | None:
        """Returns what to report now, or ``None`` if there is nothing, or it is too early."""
        unreported = repairs.since(self._said)
        if not unreported.shards or time.monotonic() < self._due:
            return None
        self._said = repairs
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return unreported

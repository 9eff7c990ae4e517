"""Which shards to recount, and when: what keeps the accounting true beside writers that do not account.

Keeps the repair half of invariant 3 at a bounded cost. At once: every shard after a start, and shards whose directory
changed while their slot did not. Soon, within a share of each tick: shards where both changed. In rotation: one shard a
tick or fewer, whatever was seen or not, which ends all drift in time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.layout import SHARDS
from lockcache.filestream.recovery import recount
from lockcache_daemon.changes import ShardWatch
from lockcache_daemon.pace import Pace

__all__ = ["Counting"]

# Shares of one core, for all directories together. At 100,000 entries a shard is recounted in 1.3 ms, so rotation goes
# at a shard a tick; at a million in 13 ms, a shard every 4 s. Looking costs 0.3 ms: every tick.
_ROTATION_DUTY: Final = 0.003
_LOOKING_DUTY: Final = 0.01

# Shares of a tick for shards where directory and slot changed: nearly always writers that account for themselves, so
# little; but half of it while writers are about that do not (they were seen in the last 30 s), which keeps them within
# two ticks also where both write the same shards.
_SHARE_FOR_UNCERTAIN: Final = 0.02
_SHARE_BESIDE_STRANGERS: Final = 0.5
_STRANGERS_STAY_SECONDS: Final = 30.0

# So many recounts at once in a row that found nothing wrong, and it is a program that replaces entries by others of the
# same size: its shards get the budget above like all that account.
_FALSE_ALARMS: Final = 256

# Waited for a shard that a writer holds, some 20 us each time. A shard that stays busy has its turn in the next tick.
_PATIENCE_SECONDS: Final = 0.02
# More busy shards than that in a row are no coincidence; and the wait for them is as long as a tick may be late.
_BUSY_IN_A_ROW: Final = 32


class Counting:
    """The recounting of one directory. Made anew when the directory is."""

    def __init__(
        self,
        directory: CacheDirectory,
        interval_seconds: float,
        share_of_duty: float,
        should_stop: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._interval_seconds = interval_seconds
        self._should_stop = should_stop
        self._watch = ShardWatch(directory.layout)
        self._looking = Pace(_LOOKING_DUTY * share_of_duty, interval_seconds)
        self._rotating = Pace(_ROTATION_DUTY * share_of_duty, interval_seconds)
        self._rotation = itertools.cycle(range(SHARDS))
        # In the order in which they came: a dict, so that none waits for ever.
        self._at_once: dict[int, None] = dict.fromkeys(range(SHARDS))
        self._soon: dict[int, None] = {}
        self._false_alarms = -SHARDS  # the first pass over all is none
        self._strangers_until = 0.0
        self._busy_in_a_row = 0

    def tick(self) -> None:
        """Look, and recount what is due. Ends early if told to stop; what is left over is due at the next."""
        self._look()
        is_credible = self._false_alarms < _FALSE_ALARMS
        self._recount(list(self._at_once), None if is_credible else self._budget_seconds())
        self._recount(list(self._soon), self._budget_seconds())
        if self._rotating.is_due:
            with self._rotating:
                self._recount([next(self._rotation)], None)

    def after_sweep(self) -> None:
        """The sweep changed slots; what changes in those shards from here on is somebody else's doing."""
        self._watch.set_slots(self._directory.usage().slots())

    def distrust(self) -> None:
        """Recount everything at the next tick: the sum is too large, and there is nothing to evict."""
        self._at_once.update(dict.fromkeys(range(SHARDS)))

    def _look(self) -> None:
        if not self._looking.is_due:
            return
        with self._looking:
            changes = self._watch.look(self._directory.usage().slots())
        self._at_once.update(dict.fromkeys(changes.unaccounted))
        self._soon.update(dict.fromkeys(changes.uncertain))

    def _budget_seconds(self) -> float:
        are_about = time.monotonic() < self._strangers_until
        return self._interval_seconds * (_SHARE_BESIDE_STRANGERS if are_about else _SHARE_FOR_UNCERTAIN)

    def _recount(self, shards: Iterable[int], budget_seconds: float | None) -> None:
        began = time.monotonic()
        for shard in shards:
            if self._should_stop():
                return
            self._recount_shard(shard)
            if budget_seconds is not None and time.monotonic() - began >= budget_seconds:
                return

    def _recount_shard(self, shard: int) -> None:
        try:
            repair = recount(self._directory, shard, _PATIENCE_SECONDS)
        except LockTimeoutError:
            self._busy_in_a_row += 1
            if self._busy_in_a_row % _BUSY_IN_A_ROW == 0:
                raise  # hung holders, or a file system that refuses to lock: news
            return  # it stays due
        self._busy_in_a_row = 0
        was_alarm = shard in self._at_once
        self._at_once.pop(shard, None)
        self._soon.pop(shard, None)
        if repair.before != repair.after:
            self._strangers_until = time.monotonic() + _STRANGERS_STAY_SECONDS
            self._false_alarms = 0
            self._watch.set_slot(shard, repair.after)
        elif was_alarm:
            self._false_alarms += 1

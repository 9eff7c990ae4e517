# SPDX-License-Identifier: Apache-2.0
"""The recount schedule: which shards to recount, and when, next to writers that do not account.

Keeps the repair half of invariant 3 (hard cap) at a bounded cost. At once: every shard after a start, and shards whose
directory changed while their slot did not. Soon, within a share of each tick: shards where both changed. In the
background, one shard a tick or fewer: in turn a shard whose mtime may have been too coarse to show a change, and the
next shard of a rotation over all, changed or not, which ends all drift in time.

:class:`ShardWatch` finds by the mtimes of the shards' directories which of them changed: what cuda.core's own cache
puts into the directory is seen at the next tick. A rename or unlink in a shard changes its directory's mtime; a writer
that accounts changes the shard's slot too, a writer that does not leaves the slot. One pass is 256 stats, 0.3 ms.
mtimes may tick as coarsely as once a second or two, so an equal mtime proves nothing about what came right after a
pass: each shard that changed is inspected once more after ``_COARSEST_MTIME_SECONDS``, measured on our own clock from
when the change was seen. An mtime is final only where it is older than a file server's clock may be wrong: after a
start those are nearly all shards of a large directory.

In a directory without writers only these passes and the background cost anything, and their shares add up to one sum.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from lockcache.errors import LockTimeoutError
from lockcache.lowlevel import SHARDS, CacheDirectory, Layout, Repair, Slot, recount_shard
from lockcache_daemon.observe import Repairs
from lockcache_daemon.settings import Rules
from lockcache_daemon.throttle import Throttle

# Shares of one core, for all directories together. Their sum is what an idle daemon costs, but for 0.1 % of wake-ups,
# policy and reaping: sized to stay below 0.8 %. Looking costs 0.3 ms, so it fits into every tick down to one of 60 ms.
# At 100,000 entries a shard is recounted in 1.3 ms, so the background goes at a shard every second tick, and at a
# million in 13 ms, a shard every 7 s.
_LOOKING_DUTY: Final = 0.005
_BACKGROUND_DUTY: Final = 0.002

# Shares of a tick for shards where directory and slot changed: nearly always writers that account, so the share is
# small; but half of the tick while writers that do not account (strangers) were seen in the last 30 s, which corrects
# their shards within two ticks also where both kinds write the same shards.
_SHARE_FOR_UNCERTAIN: Final = 0.02
_SHARE_NEXT_TO_STRANGERS: Final = 0.5
_STRANGERS_STAY_SECONDS: Final = 30.0

# After so many recounts at once in a row that found nothing wrong, the writer is a program that replaces entries by
# others of the same size: its shards get the budget above, like those of writers that account.
_FALSE_ALARMS: Final = 256

# The wait for a shard that a writer holds, some 20 us each time. A shard that stays busy is tried in the next tick.
_PATIENCE_SECONDS: Final = 0.02
# More busy shards than that in a row are not a coincidence; and waiting for them takes as long as a tick may be late.
_BUSY_IN_A_ROW: Final = 32


class Counting:
    """The recounting of one open directory. A directory that is opened again gets a new one."""

    def __init__(self, directory: CacheDirectory, rules: Rules, between: Callable[[], object]) -> None:
        """``between`` is called between shards and within them, and may raise to give up."""
        self._directory = directory
        self._interval_seconds = rules.interval_seconds
        self._between = between
        self._watch = ShardWatch(directory.layout)
        self._looking = Throttle(*rules.pace(_LOOKING_DUTY))
        self._background = Throttle(*rules.pace(_BACKGROUND_DUTY))
        self._rotation = itertools.cycle(range(SHARDS))
        # In the order in which they came: a dict, so that none waits for ever.
        self._at_once: dict[int, None] = dict.fromkeys(range(SHARDS))
        self._soon: dict[int, None] = {}
        self._some_day: dict[int, None] = {}
        self._is_turn_of_rotation = False
        self._false_alarms = -SHARDS  # the first pass over all shards does not count
        self._strangers_until = 0.0
        self._busy_in_a_row = 0
        #: The repairs since this object was made.
        self.repairs = Repairs()

    def tick(self) -> None:
        """Look for changes, and recount the shards that are due. Shards that are left over are due at the next tick."""
        self._look()
        is_credible = self._false_alarms < _FALSE_ALARMS
        self._recount(list(self._at_once), None if is_credible else self._budget_seconds())
        self._recount(list(self._soon), self._budget_seconds())
        if self._background.is_due:
            with self._background:
                self._recount([self._next_in_background()], None)

    def change(self, rules: Rules) -> None:
        """Use other settings from the next tick on."""
        self._interval_seconds = rules.interval_seconds
        self._looking.change(*rules.pace(_LOOKING_DUTY))
        self._background.change(*rules.pace(_BACKGROUND_DUTY))

    def after_sweep(self) -> None:
        """Take the slots as a sweep left them, so that only later changes count as those of other programs."""
        self._watch.set_slots(self._directory.usage().slots())

    def note(self, repair: Repair) -> None:
        """Count the repair of a shard."""
        self.repairs = self.repairs.plus(repair)

    def distrust(self) -> None:
        """Recount everything at the next tick: the sum is too large, although there is nothing to evict."""
        self._at_once.update(dict.fromkeys(range(SHARDS)))

    def _look(self) -> None:
        if not self._looking.is_due:
            return
        with self._looking:
            changes = self._watch.look(self._directory.usage().slots())
        self._at_once.update(dict.fromkeys(changes.unaccounted))
        self._soon.update(dict.fromkeys(changes.uncertain))
        # While strangers were seen, a coarse mtime may hide their writes for as long as its shard waits. Else it may
        # hide only a stranger that wrote within the same 2 s as a writer that accounts, on a file system of that kind,
        # and was never seen before.
        waiting = self._soon if self._are_strangers_about else self._some_day
        waiting.update(dict.fromkeys(changes.coarse))

    def _next_in_background(self) -> int:
        # In turn: under steady writers shards with a coarse mtime never end, and would hold up the rotation.
        self._is_turn_of_rotation = not self._is_turn_of_rotation
        if self._some_day and not self._is_turn_of_rotation:
            return next(iter(self._some_day))
        return next(self._rotation)

    @property
    def _are_strangers_about(self) -> bool:
        return time.monotonic() < self._strangers_until

    def _budget_seconds(self) -> float:
        share = _SHARE_NEXT_TO_STRANGERS if self._are_strangers_about else _SHARE_FOR_UNCERTAIN
        return self._interval_seconds * share

    def _recount(self, shards: Iterable[int], budget_seconds: float | None) -> None:
        began = time.monotonic()
        for shard in shards:
            self._between()
            self._recount_shard(shard)
            if budget_seconds is not None and time.monotonic() - began >= budget_seconds:
                return

    def _recount_shard(self, shard: int) -> None:
        try:
            repair = recount_shard(self._directory, shard, _PATIENCE_SECONDS, self._between)
        except LockTimeoutError:
            self._busy_in_a_row += 1
            if self._busy_in_a_row % _BUSY_IN_A_ROW == 0:
                raise  # hung holders, or a file system that refuses to lock: this is reported
            return  # the shard stays due
        self._busy_in_a_row = 0
        was_alarm = shard in self._at_once
        self._at_once.pop(shard, None)
        self._soon.pop(shard, None)
        self._some_day.pop(shard, None)
        if repair.before != repair.after:
            self._strangers_until = time.monotonic() + _STRANGERS_STAY_SECONDS
            self._false_alarms = 0
            self._watch.set_slot(shard, repair.after)
            self.note(repair)
        elif was_alarm:
            self._false_alarms += 1


# FAT and some network file systems: 2 s.
_COARSEST_MTIME_SECONDS: Final = 2.0

_WORST_CLOCK_NS: Final = 3600 * 10**9

_NOT_THERE: Final = -1


class Changes(NamedTuple):
    """Shards that changed since the last look."""

    #: The directory changed and the slot did not: a writer that does not account, or that replaced like by like.
    unaccounted: list[int]
    #: Both changed: most likely a writer that accounts, but another one may hide behind it.
    uncertain: list[int]
    #: Nothing changed; they did a while ago, and their mtime may be too coarse to say what came right after.
    coarse: list[int]


class ShardWatch:
    """Remembers how each shard looked. Its caller recounts the shards that :meth:`look` names, and sets their slots."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = [layout.entry_shard(shard) for shard in range(SHARDS)]
        self._clock = clock
        self._mtimes = [_NOT_THERE] * SHARDS
        self._slots = [Slot(0, 0)] * SHARDS
        self._look_again: dict[int, float] = {}

    def look(self, slots: Sequence[Slot]) -> Changes:
        """Returns the shards that changed since the last call. ``slots``: the accounting as it stands."""
        now, wall_ns = self._clock(), time.time_ns()
        changes = Changes([], [], [])
        for shard, path in enumerate(self._paths):
            mtime = _mtime_ns(path)
            if mtime != self._mtimes[shard]:
                (changes.unaccounted if slots[shard] == self._slots[shard] else changes.uncertain).append(shard)
                self._mtimes[shard] = mtime
                if abs(wall_ns - mtime) < _WORST_CLOCK_NS:
                    self._look_again[shard] = now + _COARSEST_MTIME_SECONDS
        self._slots = list(slots)
        changes.coarse.extend(self._due(now))
        return changes

    def set_slot(self, shard: int, slot: Slot) -> None:
        """Note that we changed this slot, so that the next look does not take the change for a writer's accounting."""
        self._slots[shard] = slot

    def set_slots(self, slots: Sequence[Slot]) -> None:
        """Note the slots of all shards, like :meth:`set_slot`."""
        self._slots = list(slots)

    def _due(self, now: float) -> list[int]:
        if not self._look_again:
            return []
        due = [shard for shard, when in self._look_again.items() if when <= now]
        for shard in due:
            del self._look_again[shard]
        return due


def _mtime_ns(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return _NOT_THERE

"""Which shards changed behind the accounting's back, told by their directories' mtimes.

Keeps the daemon's promise for programs that never heard of lockcache: what cuda.core's own cache puts into the
directory is seen at the next tick. A rename or unlink in a shard changes its directory's mtime; a writer that accounts
changes the shard's slot too, one that does not leaves it. One look is 256 stats, 0.3 ms.

mtimes may tick as coarsely as once a second or two, so an equal mtime proves nothing about what came right after a
look: each shard that changed is looked at once more after ``_COARSEST_MTIME_SECONDS``, measured on our own clock from
when the change was seen. Only where the mtime is older than any clock of a file server may be wrong is it taken to be
final: after a start that is nearly all of a large directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lockcache.filestream.layout import SHARDS, Layout
from lockcache.filestream.usage import Slot

__all__ = ["Changes", "ShardWatch"]

# FAT and some network file systems: 2 s.
_COARSEST_MTIME_SECONDS: Final = 2.0

_WORST_CLOCK_NS: Final = 3600 * 10**9

_NOT_THERE: Final = -1


class Changes(NamedTuple):
    """Shards that changed since the last look."""

    #: The directory changed and the slot did not: a writer that does not account (or one that replaced like by like).
    unaccounted: list[int]
    #: Both changed: most likely a writer that accounts, but another one may hide behind it.
    uncertain: list[int]
    #: Nothing changed; they did a while ago, and their mtime may be too coarse to say what came right after.
    coarse: list[int]


class ShardWatch:
    """Remembers how each shard looked. Its caller recounts what :meth:`look` names, and says so."""

    def __init__(self, layout: Layout, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = [layout.entry_shard(shard) for shard in range(SHARDS)]
        self._clock = clock
        self._mtimes = [_NOT_THERE] * SHARDS
        self._slots = [Slot(0, 0)] * SHARDS
        self._look_again: dict[int, float] = {}

    def look(self, slots: Sequence[Slot]) -> Changes:
        """What changed since the last look. ``slots``: the accounting as it stands."""
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
        """Say that we changed this slot ourselves, so that the next look does not take it for somebody's accounting."""
        self._slots[shard] = slot

    def set_slots(self, slots: Sequence[Slot]) -> None:
        """As :meth:`set_slot`, for all."""
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

"""Putting what a directory holds on the board, while it is kept: a part of each keeper.

Keeps it cheap: the accounting page and the programs' counters are read every few seconds, not at every tick, and
entries are only looked at (:mod:`.standouts`) where a status page is served.
"""

from __future__ import annotations

import time
from typing import Final

from lockcache.filestream.counters import read_counters
from lockcache_daemon.board import Board, Limits
from lockcache_daemon.shards import ShardStore
from lockcache_daemon.standouts import Standouts, in_shards, in_walks
from lockcache_daemon.store import Kept, Repairs

__all__ = ["Watching"]

# Two reads of a page, 50 us: fresher than any scrape needs.
_INTERVAL_SECONDS: Final = 2.0


class Watching:
    """As :class:`.store.Part`."""

    def __init__(self, kept: Kept, *, seeks_standouts: bool) -> None:
        self._kept = kept
        self._board: Board = kept.report.board
        self._repairs = Repairs()
        self._due = 0.0
        self._standouts = None
        if seeks_standouts:
            store = kept.store
            source = in_shards(store.layout) if isinstance(store, ShardStore) else in_walks(store.entries)
            self._standouts = Standouts(source, kept.share_of_duty, kept.rules.interval_seconds)

    def tick(self) -> None:
        if self._standouts is not None:
            self._standouts.tick()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_SECONDS
            self._put()

    def close(self) -> None:
        self._board.update(self._kept.root, is_open=False)

    def _put(self) -> None:
        kept, board = self._kept, self._board
        changes: dict[str, object] = {"clients": read_counters(kept.store.layout)}
        if self._standouts is not None:
            changes["standouts"] = self._standouts.seen
        board.update(kept.root, **changes)
        board.measured(kept.root, kept.store.held(), self._limits())
        done, self._repairs = self._repairs, kept.store.repairs
        if done != self._repairs:
            new = self._repairs.since(done)
            board.repaired(kept.root, new.shards, new.drift_bytes)

    def _limits(self) -> Limits:
        policy, rules = self._kept.store.policy.current(), self._kept.rules
        marks = rules.watermarks(policy)
        low, high = (None, None) if marks is None else marks
        return Limits(policy.max_size_bytes, rules.max_entries, low, high)

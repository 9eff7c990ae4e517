# SPDX-License-Identifier: Apache-2.0
"""Counters and signals that all processes of a run share, in one file in memory; and latencies.

The counts of a worker survive its SIGKILL. Each row belongs to one writer number, each cell is one aligned int64. The
latencies of any number of operations are a few hundred counts: buckets are 2 % wide, and so are errors of percentiles.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Final

from lockcache_stress.judge import attach
from lockcache_stress.plan import Plan

#: The counters of every worker, in the order of its row.
COUNTED: Final = (
    "ready",
    "finished",
    "operations",
    "hits",
    "misses",
    "puts",
    "deletes",
    "compiles",
    "launches",
    "torn",
    "stale",
    "foreign",
    "dropped",
    "evictions",
    "evicted_in_use",
    "longest_wait_us",
    "failures",
    "digest_failures",
    "troubles",
    "refused",
    "kept_older",
    "hits_in_trouble",
    "piles",
    "waited_us",
    "waiting_cpu_us",
)
#: The counters of which the largest counts, because their sum means nothing.
LARGEST: Final = ("longest_wait_us", "piles")
_INDEX: Final = {name: index for index, name in enumerate(COUNTED)}
# The cells before the rows: the times at which workers may begin (0: not yet) and must stop, on the shared clock.
_GO: Final = 0
_STOP: Final = 1
_HEADER: Final = 2
_GROWTH = math.log(1.02)


class Counters:
    """The shared table. Only the worker of a row may add to it; all processes may read."""

    def __init__(self, plan: Plan) -> None:
        self._rows = plan.columns
        self._cells = attach(os.path.join(plan.control, "counters"), _HEADER + self._rows * len(COUNTED))

    def add(self, writer: int, name: str, amount: int = 1) -> None:
        """Add to a counter in the caller's own row."""
        self._cells[self._cell(writer, name)] += amount

    def set(self, writer: int, name: str, value: int) -> None:
        """State a number that is counted elsewhere, in the caller's own row."""
        self._cells[self._cell(writer, name)] = value

    def get(self, writer: int, name: str) -> int:
        """Returns one worker's number."""
        return self._cells[self._cell(writer, name)]

    def total(self, name: str) -> int:
        """Returns the sum of all workers' numbers, dead ones included."""
        return sum(self.get(writer, name) for writer in range(self._rows))

    def largest(self, name: str) -> int:
        """Returns the largest of all workers' numbers."""
        return max(self.get(writer, name) for writer in range(self._rows))

    def totals(self) -> dict[str, int]:
        """Returns every counter over all workers: their sum, or the largest of those in :data:`LARGEST`."""
        return {name: self.largest(name) if name in LARGEST else self.total(name) for name in COUNTED}

    @property
    def go_us(self) -> int:
        """The time at which workers may begin; 0 while they must wait."""
        return self._cells[_GO]

    @property
    def stop_us(self) -> int:
        """The time at which workers end."""
        return self._cells[_STOP]

    def start(self, go_us: int, stop_us: int) -> None:
        """Let the workers begin, and state when they must stop."""
        self._cells[_STOP] = stop_us
        self._cells[_GO] = go_us

    def stop(self) -> None:
        """Have every worker end after its present operation."""
        self._cells[_STOP] = 1

    def _cell(self, writer: int, name: str) -> int:
        return _HEADER + writer * len(COUNTED) + _INDEX[name]


class Latencies:
    """Counts by bucket of the logarithm; can be sent as JSON and added up over workers."""

    def __init__(self, buckets: Mapping[str, int] | None = None) -> None:
        self._buckets = Counter({int(bucket): count for bucket, count in (buckets or {}).items()})

    def add(self, nanoseconds: int) -> None:
        """Count one operation."""
        self._buckets[int(math.log(nanoseconds or 1) / _GROWTH)] += 1

    def merge(self, other: Latencies) -> None:
        """Count another worker's operations too."""
        self._buckets.update(other._buckets)

    def percentile_us(self, percent: float) -> float | None:
        """Returns the microseconds that ``percent`` of the operations did not exceed; ``None`` for no operations."""
        wanted = self._buckets.total() if hasattr(self._buckets, "total") else sum(self._buckets.values())
        wanted = math.ceil(wanted * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return math.exp((bucket + 0.5) * _GROWTH) / 1000
        return None

    def histogram(self) -> list[tuple[float, int]]:
        """Returns the microseconds in the middle of each bucket, and the operations in it; the quickest first."""
        return [(math.exp((bucket + 0.5) * _GROWTH) / 1000, self._buckets[bucket]) for bucket in sorted(self._buckets)]

    def as_json(self) -> dict[str, int]:
        """Returns the buckets by number, as text."""
        return {str(bucket): count for bucket, count in self._buckets.items()}

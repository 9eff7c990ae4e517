"""Latencies of any number of operations in a few hundred counts: buckets are 2 % wide, so are percentiles' errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

_GROWTH = math.log(1.02)


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
        """The latency in microseconds that ``percent`` of the operations did not exceed; ``None`` for no operations."""
        wanted = self._buckets.total() if hasattr(self._buckets, "total") else sum(self._buckets.values())
        wanted = math.ceil(wanted * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return math.exp((bucket + 0.5) * _GROWTH) / 1000
        return None

    def histogram(self) -> list[tuple[float, int]]:
        """Microseconds in the middle of a bucket, and operations in it; the quickest first."""
        return [(math.exp((bucket + 0.5) * _GROWTH) / 1000, self._buckets[bucket]) for bucket in sorted(self._buckets)]

    def as_json(self) -> dict[str, int]:
        """Buckets by number, as text."""
        return {str(bucket): count for bucket, count in self._buckets.items()}

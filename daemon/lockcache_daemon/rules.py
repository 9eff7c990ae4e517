"""What the operator asked for, and the watermarks that follow from it. Pure.

A sweep begins above the high watermark and ends at the low one. The high one lies halfway between the low one and the
limit: writers that fill the upper half of that span within one tick are rare, and they make room for themselves; and
half the span is what one sweep frees, so that sweeps stay rare too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lockcache.filestream.policy import Policy

__all__ = ["Rules", "Watermarks"]


class Watermarks(NamedTuple):
    """Where a sweep ends, and above what it begins."""

    low_bytes: int
    high_bytes: int


@dataclass(frozen=True)
class Rules:
    """What one daemon was told."""

    max_size_bytes: int
    #: Of what entries may add up to, where a sweep ends.
    low_share: float = 0.9
    interval_seconds: float = 0.5

    @property
    def policy(self) -> Policy:
        """What goes into each directory. An operator's word, so that no program's ``max_size_bytes`` replaces it."""
        return Policy(self.max_size_bytes, by_operator=True)

    def watermarks(self, policy: Policy) -> Watermarks | None:
        """Where sweeps begin and end under ``policy``; ``None`` where it sets no cap."""
        limit = policy.entries_limit_bytes
        if limit is None:
            return None
        low = int(limit * self.low_share)
        return Watermarks(low, (low + limit) // 2)

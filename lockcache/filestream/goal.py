"""What an eviction gets down to: bytes, entries, or both. Pure.

Decides when enough was removed: whichever of the two limits is exceeded is a reason to go on. Relied on by eviction and
by whoever walks another program's layout, so that a budget means the same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockcache.filestream.usage import Slot

__all__ = ["Goal"]


@dataclass(frozen=True)
class Goal:
    """Limits that must all hold at the end. ``None``: as much as there is."""

    limit_bytes: int | None = None
    limit_entries: int | None = None

    def surplus(self, held: Slot) -> Slot:
        """What has to go of ``held``, at least 0 of each."""
        over_bytes = 0 if self.limit_bytes is None else held.bytes - self.limit_bytes
        over_entries = 0 if self.limit_entries is None else held.entries - self.limit_entries
        return Slot(max(0, over_bytes), max(0, over_entries))

    def is_met(self, held: Slot) -> bool:
        return self.surplus(held) == (0, 0)

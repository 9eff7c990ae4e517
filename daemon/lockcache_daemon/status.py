"""What ``daemon.json`` says of a directory, and when it is worth a write.

Keeps an idle daemon from writing: a status goes to disk after a sweep, and else at most every few seconds and only if
its numbers changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Final

from lockcache.filestream.policy import Policy
from lockcache.filestream.usage import Slot
from lockcache_daemon.instance import Instance
from lockcache_daemon.report import Sweep
from lockcache_daemon.rules import Watermarks
from lockcache_daemon.standby import read_standbys

__all__ = ["Status"]

_INTERVAL_SECONDS: Final = 5.0


class Status:
    """The running totals of one directory."""

    def __init__(self) -> None:
        self._totals = {"sweeps": 0, "evicted_entries": 0, "evicted_bytes": 0}
        self._last_sweep: dict[str, Any] | None = None
        self._published: dict[str, Any] | None = None
        self._due = 0.0
        #: Fields of others, as they are now.
        self.more: dict[str, Any] = {}

    def count(self, sweep: Sweep) -> None:
        """Add a sweep. It is to be published at once."""
        self._totals["sweeps"] += 1
        self._totals["evicted_entries"] += sweep.evicted_entries
        self._totals["evicted_bytes"] += sweep.evicted_bytes
        self._last_sweep = {"time": datetime.now(timezone.utc).isoformat(timespec="seconds"), **asdict(sweep)}
        self._due = 0.0

    def publish(
        self,
        instance: Instance,
        layout: str,
        policy: Policy,
        marks: Watermarks | None,
        held: Callable[[], Slot],
        *,
        at_once: bool = False,
    ) -> None:
        """Write the status, if it is due and says something new. ``held`` is asked only then."""
        if at_once or time.monotonic() >= self._due:
            body = {"role": "active", "layout": layout, "standbys": read_standbys(instance.layout)}
            body |= self._render(policy, marks, held())
            if at_once or self._is_news(body):
                self._due = 0.0  # if it fails, it is tried at the next tick, not taken for mended until it is due
                instance.publish(body)
                self._published = body
                self._due = time.monotonic() + _INTERVAL_SECONDS

    def _render(self, policy: Policy, marks: Watermarks | None, held: Slot) -> dict[str, Any]:
        return {
            "max_size_bytes": policy.max_size_bytes,
            "low_bytes": marks and marks.low_bytes,
            "high_bytes": marks and marks.high_bytes,
            "bytes": held.bytes,
            "entries": held.entries,
            **self._totals,
            "last_sweep": self._last_sweep,
            **self.more,
        }

    def _is_news(self, body: dict[str, Any]) -> bool:
        """Whether ``body`` differs from what was published. If not, the question is put off for a while."""
        self._due = time.monotonic() + _INTERVAL_SECONDS
        return body != self._published

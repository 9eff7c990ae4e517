"""Pace of work in the background: how often it may run, from what it was seen to cost.

Keeps an idle daemon's cost bounded, whatever the size of the directory and the speed of its file system: after work
that took c seconds the next is due c / duty later. The cheaper of the last two times counts: a slow file system is slow
each time, a process that lost its core to others is not.
"""

from __future__ import annotations

import time
from typing import Final

# Waiting for a network file system is not using a core, but it is using that file system: a twentieth of it counts.
_WAITING_COUNTS: Final = 1 / 20


class Pace:
    """``with pace:`` around the work measures it; :attr:`is_due` says whether its time has come again.

    ``tick_seconds`` is how often one asks at most. Work that fits into its share of a tick is due at every one, so that
    what is promised in ticks does not hang on when exactly they come.
    """

    def __init__(self, duty: float, tick_seconds: float) -> None:
        self._duty = duty
        self._tick_seconds = tick_seconds
        self._due = self._cost_before = 0.0
        self._began_cpu = self._began = 0.0

    def change(self, duty: float, tick_seconds: float) -> None:
        """Another share from the next piece of work on."""
        self._duty = duty
        self._tick_seconds = tick_seconds

    def forgive(self) -> None:
        """What was just done found something to do: it is due again at once."""
        self._due = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def __enter__(self) -> None:
        self._began_cpu, self._began = time.thread_time(), time.monotonic()

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        cost = max(time.thread_time() - self._began_cpu, (now - self._began) * _WAITING_COUNTS)
        pause = min(cost, self._cost_before) / self._duty
        self._cost_before = cost
        self._due = now + pause if pause > self._tick_seconds else 0.0

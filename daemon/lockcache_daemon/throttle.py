# SPDX-License-Identifier: Apache-2.0
"""Throttle of work in the background: how often it may run, by its measured cost.

Keeps an idle daemon's cost bounded, whatever the size of the directory and the speed of its file system: after work
that took c seconds the next work is due c / duty later. The cheaper of the last two times counts: a slow file system is
slow each time, a process that lost its core to others is not.
"""

from __future__ import annotations

import time
from typing import Final

# Waiting for a network file system uses no core, but it uses that file system: a twentieth of the wait counts.
_WAITING_COUNTS: Final = 1 / 20


class Throttle:
    """``with throttle:`` measures the work in the block; :attr:`is_due` says whether the work is due again.

    ``tick_seconds`` is the time between two ticks. Work that fits into its share of a tick is due at every tick, so
    that promises in ticks do not depend on when exactly the ticks come.
    """

    def __init__(self, duty: float, tick_seconds: float) -> None:
        self._duty = duty
        self._tick_seconds = tick_seconds
        self._due = self._cost_before = 0.0
        self._began_cpu = self._began = 0.0

    def change(self, duty: float, tick_seconds: float) -> None:
        """Use another share from the next work on."""
        self._duty = duty
        self._tick_seconds = tick_seconds

    def forgive(self) -> None:
        """Make the work due again at once, because it found something to do."""
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

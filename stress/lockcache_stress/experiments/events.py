# SPDX-License-Identifier: Apache-2.0
"""Discrete events: a clock, processes that wait for moments and for bells, and a server with a queue."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Generator
from typing import TypeAlias

#: A process: a generator that yields the seconds for which it waits, alone or with the bell that wakes it earlier.
Steps: TypeAlias = "Generator[float | tuple[float, Bell], None, None]"


class _Process:
    __slots__ = ("resumed", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        #: How often the process was resumed. A wake-up that was scheduled before the last time is void.
        self.resumed = 0


class Bell:
    """Wakes all processes that wait for it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[_Process, int]] = []


class Clock:
    """Runs processes in the order of their moments; of two at one moment, first the one that was scheduled first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._moments: list[tuple[float, int, _Process, int]] = []
        self._count = 0

    def start(self, steps: Steps, at: float = 0.0) -> None:
        """Have a process begin at this moment."""
        self._put_off(_Process(steps), at)

    def ring(self, bell: Bell) -> None:
        """Wake all processes that wait for ``bell``, now."""
        waiting, bell.waiting = bell.waiting, []
        for process, resumed in waiting:
            if process.resumed == resumed:
                process.resumed += 1
                self._put_off(process, self.now)

    def run(self) -> None:
        """Run until no process waits for a moment."""
        while self._moments:
            moment, _, process, resumed = heapq.heappop(self._moments)
            if process.resumed != resumed:
                continue
            self.now = moment
            process.resumed += 1
            wait = next(process.steps, None)
            if wait is None:
                continue
            if isinstance(wait, tuple):
                seconds, bell = wait
                bell.waiting.append((process, process.resumed))
            else:
                seconds = wait
            self._put_off(process, moment + seconds)

    def _put_off(self, process: _Process, moment: float) -> None:
        self._count += 1
        heapq.heappush(self._moments, (moment, self._count, process, process.resumed))


class Server:
    """Answers requests one after the other, at a stated rate, and sends bytes through one pipe.

    Several requests that a process sends one after the other are served as one. The processes that wait at the same
    time wait as long in either case, because each of their requests would queue behind one request of every other
    process.
    """

    def __init__(
        self, clock: Clock, requests_per_second: float, round_trip_seconds: float, bytes_per_second: float
    ) -> None:
        self._clock = clock
        self._request_seconds = 1 / requests_per_second
        self._round_trip_seconds = round_trip_seconds
        self._byte_seconds = 1 / bytes_per_second
        self._free_at = self._pipe_free_at = 0.0
        #: The requests of each operation; fractions, because the requests of one operation are an average.
        self.requests: defaultdict[str, float] = defaultdict(float)
        self.sent_bytes = 0

    def ask(self, operation: str, requests: float, sent_bytes: int = 0) -> float:
        """Returns after how many seconds the last of so many requests is answered."""
        self.requests[operation] += requests
        now = self._clock.now
        self._free_at = max(self._free_at, now) + requests * self._request_seconds
        done_at = self._free_at + requests * self._round_trip_seconds
        if sent_bytes:
            self.sent_bytes += sent_bytes
            self._pipe_free_at = max(self._pipe_free_at, now) + sent_bytes * self._byte_seconds
            done_at = max(done_at, self._pipe_free_at + requests * self._round_trip_seconds)
        return done_at - now

    @property
    def busy_seconds(self) -> float:
        """Returns how long the server worked on requests."""
        return sum(self.requests.values()) * self._request_seconds

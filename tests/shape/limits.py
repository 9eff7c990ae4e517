# SPDX-License-Identifier: Apache-2.0
"""Limits of the counts: the number that each may be at most, and the number that is aimed at."""

from __future__ import annotations

from typing import Final, NamedTuple


class Limit(NamedTuple):
    """The limit of one count."""

    #: ``make shape`` fails above it. Lower it with the count.
    allowed: int
    #: What the count is to become; ``None`` where it is only to fall.
    aim: int | None = None


LIMITS: Final[dict[str, Limit]] = {
    "hit: functions": Limit(3, 3),
    "hit: calls": Limit(3, 3),
    "miss: functions": Limit(3, 3),
    "miss: calls": Limit(3, 3),
    "put, no cap: functions": Limit(52, 53),
    "put, no cap: calls": Limit(65, 70),
    "get_or_compute, miss: functions": Limit(80, 85),
    "get_or_compute, miss: calls": Limit(99, 125),
    "put into a capped cache: functions": Limit(44, 50),
    "put into a capped cache: calls": Limit(53, 60),
    "put that evicts: functions": Limit(86, 85),
    "opening a warm directory: functions": Limit(63, 65),
    "opening a warm directory: calls": Limit(83, 110),
    "del: functions": Limit(20, 20),
    "del: calls": Limit(21, 25),
    "tick of the daemon, idle: functions": Limit(123),
    "tick of the daemon that sweeps: functions": Limit(211),
    "open a warm directory: system calls": Limit(25),
    "hit: system calls": Limit(5, 5),
    "miss: system calls": Limit(2, 2),
    "put, no cap: system calls": Limit(24, 24),
    "put that replaces: system calls": Limit(25),
    "lines of a function, nine of ten": Limit(17, 17),
    "lines of a function, the longest": Limit(50, 50),
    "conditions on a special case, lockcache": Limit(40, 40),
    "circles of imports, modules": Limit(0, 0),
    "circles of imports, packages": Limit(0, 0),
    # To the next hundred, so that those who work next to each other do not change the same lines all the time.
    "code lines, lockcache": Limit(37700, 25010),
    "code lines, daemon": Limit(5100, 4385),
    "code lines, stress": Limit(20100, 12509),
    "code lines, tests": Limit(57800, 43667),
}

"""An hour of samples of one directory: what the status page draws. Pure.

Keeps memory bounded: one sample every fifteen seconds, 240 of them, some 70 KB a directory. Totals are kept as they
stand, not as differences: a sample that was missed loses nothing but detail.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

HOUR_SECONDS: Final = 3600.0
#: Between two samples: a quarter of what Prometheus scrapes by default, and three pixels of the page.
SAMPLE_SECONDS: Final = 15.0
_MOST: Final = int(HOUR_SECONDS / SAMPLE_SECONDS)


class Sample(NamedTuple):
    """One moment. All but ``bytes``, ``max_size_bytes`` (0: no cap) and ``entries`` are totals that only grow."""

    time: float
    bytes: int
    max_size_bytes: int
    entries: int
    evicted_bytes: int
    evicted_entries: int
    hits: int
    misses: int


class Rate(NamedTuple):
    """What happened between two samples."""

    start: float
    end: float
    evicted_bytes: int
    evicted_entries: int
    hits: int
    misses: int


def recorded(history: tuple[Sample, ...], now: Sample) -> tuple[Sample, ...]:
    """``history`` and ``now``, if it is time for another sample; else with ``now`` in place of the newest.

    So the newest is always of this moment, and those before it are a sample's time apart. A clock that was set back
    begins a new history: what is drawn has to go forward.
    """
    if history and now.time < history[-1].time:
        return (now,)
    if len(history) > 1 and history[-1].time - history[-2].time < SAMPLE_SECONDS:
        return (*history[:-1], now)
    return (*history[-_MOST:], now)


def rates(history: tuple[Sample, ...]) -> list[Rate]:
    """What happened in each interval. A total that fell (its file was removed) counts from zero, as Prometheus does."""
    return [
        Rate(
            before.time,
            after.time,
            _grown(before.evicted_bytes, after.evicted_bytes),
            _grown(before.evicted_entries, after.evicted_entries),
            _grown(before.hits, after.hits),
            _grown(before.misses, after.misses),
        )
        for before, after in itertools.pairwise(history)
    ]


def _grown(before: int, after: int) -> int:
    return after - before if after >= before else after

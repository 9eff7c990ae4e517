# SPDX-License-Identifier: Apache-2.0
"""The history of one directory: an hour of samples, which the status page draws. Pure.

Keeps memory bounded: one sample every fifteen seconds, 240 of them, some 70 KB a directory. Totals are kept as they
are, not as differences: a missed sample loses nothing but detail.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

HOUR_SECONDS: Final = 3600.0
#: Between two samples: a quarter of Prometheus's default interval, and three pixels of the page.
SAMPLE_SECONDS: Final = 15.0
_MOST: Final = int(HOUR_SECONDS / SAMPLE_SECONDS)


class Sample(NamedTuple):
    """A directory at one moment. The fields after ``entries`` are totals that only grow."""

    time: float
    bytes: int
    #: 0: no cap.
    max_size_bytes: int
    entries: int
    evicted_bytes: int
    evicted_entries: int
    hits: int
    misses: int


class Rate(NamedTuple):
    """The growth of the totals between two samples."""

    start: float
    end: float
    evicted_bytes: int
    evicted_entries: int
    hits: int
    misses: int


def recorded(history: tuple[Sample, ...], now: Sample) -> tuple[Sample, ...]:
    """Returns ``history`` with ``now`` added, if another sample is due; else with ``now`` in place of the newest.

    So the newest sample is always of this moment, and older samples are a sample's time apart. A clock that was set
    back begins a new history, because times in a chart have to go forward.
    """
    if history and now.time < history[-1].time:
        return (now,)
    if len(history) > 1 and history[-1].time - history[-2].time < SAMPLE_SECONDS:
        return (*history[:-1], now)
    return (*history[-_MOST:], now)


def rates(history: tuple[Sample, ...]) -> list[Rate]:
    """Returns the growth in each interval. A total that fell (its file was removed) counts from zero."""
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

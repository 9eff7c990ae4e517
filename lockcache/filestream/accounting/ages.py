# SPDX-License-Identifier: Apache-2.0
"""The age of a directory, by which eviction by value compares entries: how worthless what was evicted had become.

The age rises with each eviction to the value of the last entry that went (the inflation value of GreedyDual-Size). An
entry is worth the age at its last use, plus what it saves. A hit writes no age: the page remembers at which times the
age was what, and the last use of an entry, which is on the disk, says which of these counts for it.

Keeps the caution of invariant 1 (a hit is whole) for what others could write: whatever the bytes are, the ages are
finite, rise with time, and leave room to rise. So damage changes an order, and nothing else. 1,024 bytes of the head's
block, little-endian: 64 times (int64, ns since the epoch), each with its age (double); zeros for none.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

__all__ = ["MOST_AGE", "Ages", "decode_ages", "encode_ages"]

_POINT: Final = struct.Struct("<qd")
_MOST_POINTS: Final = 64
#: The bytes of encoded ages.
AGES_BYTES: Final = _POINT.size * _MOST_POINTS
#: Ages are less: at it, all begin again at 0. The value of an ordinary entry is some 10^4 and that of an hour's in one
#: block, hit 255 times, 2 x 10^11; near this a double still tells values apart by an eighth, so that ages rise.
MOST_AGE: Final = 1e15
_LATEST_NS: Final = 2**63 - 1


class Ages(NamedTuple):
    """At which times the age was what; from the oldest time on, and both rise."""

    times_ns: tuple[int, ...] = ()
    ages: tuple[float, ...] = ()

    def at(self, time_ns: int) -> float:
        """Returns the age at a time; 0 before the first."""
        before = bisect_right(self.times_ns, time_ns)
        return self.ages[before - 1] if before else 0.0

    def raised(self, now_ns: int, age: float) -> Ages:
        """Returns the ages once the age is ``age`` from now on. It never falls.

        Times to come, of another host's clock, are taken for now: else no age would count until then. At
        :data:`MOST_AGE`, which damage alone comes near, it begins again: if it stayed, expensive entries would too.
        """
        kept = bisect_right(self.times_ns, now_ns - 1)
        age = max(age, self.ages[-1] if self.ages else 0.0)
        if age >= MOST_AGE:
            return Ages()
        times, ages = [*self.times_ns[:kept], now_ns], [*self.ages[:kept], age]
        if len(ages) > 1 and ages[-2] == age:  # not risen
            del times[-1], ages[-1]
        if len(ages) > _MOST_POINTS:
            dispensable = _dispensable(ages)
            del times[dispensable], ages[dispensable]
        return Ages(tuple(times), tuple(ages))


def _dispensable(ages: list[float]) -> int:
    """Returns the point that is missed least: the steps to its neighbours are small for how long ago they were.

    So few points stand for ages that only what is worth most can be left of, and many for the last ones.
    """
    now = ages[-1]
    missed = [(later - earlier) / (now - earlier) for earlier, later in zip(ages, ages[2:], strict=False)]
    return 1 + missed.index(min(missed))


def encode_ages(ages: Ages) -> bytes:
    """Returns the bytes of :func:`decode_ages`."""
    return b"".join(map(_POINT.pack, ages.times_ns, ages.ages)).ljust(AGES_BYTES, b"\0")


def decode_ages(blob: bytes) -> Ages:
    """Returns the ages in these bytes, of any length. What cannot be is left out."""
    whole = len(blob) // _POINT.size * _POINT.size
    points = sorted(point for point in _POINT.iter_unpack(blob[:whole]) if _can_be(*point))[:_MOST_POINTS]
    return Ages(tuple(time_ns for time_ns, _ in points), tuple(_rising(age for _, age in points)))


def _can_be(time_ns: int, age: float) -> bool:
    return 0 < time_ns < _LATEST_NS and math.isfinite(age) and 0 <= age < MOST_AGE


def _rising(ages: Iterable[float]) -> Iterable[float]:
    return accumulate(ages, max)

# SPDX-License-Identifier: Apache-2.0
"""The age of a directory, by which eviction by value compares entries: how worthless what was evicted had become.

The age rises with each eviction to the value of the last entry that went (the inflation value of GreedyDual-Size). An
entry is worth the age at its last use, plus what it saves. A hit writes no age: the page remembers at which times the
age was what, and the last use of an entry, which is on the disk, says which of these counts for it.

Where they stand, and what is made of any bytes there: :mod:`.worth`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

__all__ = ["MOST_AGE", "Ages"]

_MOST_POINTS: Final = 64
#: Ages are less: at it, all begin again at 0. The value of an ordinary entry is some 10^4 and that of an hour's in one
#: block, hit 255 times, 2 x 10^11; near this a double still tells values apart by an eighth, so that ages rise.
MOST_AGE: Final = 1e15


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

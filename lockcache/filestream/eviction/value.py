# SPDX-License-Identifier: Apache-2.0
"""Order by value: what saves least for its bytes goes first. Pure.

Decides what an entry is worth, in nanoseconds of compiling for each byte:

    age at its last use + uses x compile cost / bytes

where the age of the directory rises to the value of the last entry that went. That is GDSF, GreedyDual-Size with
frequency (Cherkasova: Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, HP Labs 1998),
which needs no sweep to let values fall: all that is stored or used from now on begins at the age, so what nobody uses
any more goes in the end, however expensive it was. A hit writes nothing for it: the ages of the past are in the state
page (:mod:`.accounting.ages`), the last use is on the disk, uses are counted roughly (:mod:`.accounting.worth`).

An entry whose cost nobody recorded (cuda.core's own cache records none) is taken to cost the median of the others.
The newest entry goes last, and others of the last second up to a sixteenth of the bytes: of a job's processes one has
just stored it, and the others are about to read it. Not all of that second, for a flood of cheap entries would then
drive out all others. Used by eviction, and by ``lockcache-stress simulate``, which therefore simulates the real choice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lockcache.filestream.accounting import Ages, Found

# If no cost is known: the order is then that of uses, bytes and time. Of the size of a real one, for the ages of before
# and after are compared.
_ANY_COST_NS: Final = 10**8

# For how long, and for which share of the bytes, what was used last is taken to be in use.
_IN_USE_NS: Final = 10**9
_IN_USE_SHARE: Final = 16


class Ranked(NamedTuple):
    """Entries in the order of eviction, the first to go first."""

    entries: list[Found]
    #: What each is worth; empty where last use alone counts.
    values: Sequence[float] = ()
    #: The costs that are worth remembering (:meth:`.Worth.note_evicted`).
    learned: Mapping[int, float] = {}
    #: What an entry that is stored from now on will be worth more than the age, going by the least of these.
    least: float = 0.0

    def spared(self, victims: int, batch: int) -> Ranked:
        """Returns those of the ``batch`` behind so many ``victims`` that will be worth less than what is stored next.

        ``victims``: one at least, whose value the age rises to.
        """
        values = self.values[victims : victims + batch]
        if values:
            batch = bisect_right(values, self.values[victims - 1] + self.least)
        return Ranked(self.entries[victims : victims + batch], values[:batch])


def rank(found: Sequence[Found], costs: Sequence[float], hits: Sequence[int], ages: Ages, now_ns: int) -> Ranked:
    """Returns entries in the order of eviction by value. Of equal value, the least recently used first.

    ``costs``: the ns that compiling each took, 0 if that is not known. ``hits``: how often each was hit.
    """
    known = sorted(filter(None, costs))
    typical = known[(len(known) - 1) // 2] if known else _ANY_COST_NS
    times_ns, age_from = ages.times_ns, (0.0, *ages.ages)
    uses_ns, sizes = [entry.last_use_ns for entry in found], [entry.size_bytes for entry in found]
    gains = [(cost or typical) / (size or 1) for cost, size in zip(costs, sizes, strict=True)]
    values = [
        age_from[bisect_right(times_ns, used_ns)] + (1 + count) * gain
        for used_ns, gain, count in zip(uses_ns, gains, hits, strict=True)
    ]
    places: Sequence[int] = range(len(found))
    if len(set(values)) < len(values):
        places = sorted(places, key=found.__getitem__)
    order = sorted(places, key=values.__getitem__)
    recent = sorted((found[place], place) for place, used_ns in enumerate(uses_ns) if used_ns > now_ns - _IN_USE_NS)
    if recent:
        left_bytes, in_use = sum(sizes) // _IN_USE_SHARE, set[int]()
        for _, place in reversed(recent):
            left_bytes -= sizes[place]
            if left_bytes < 0 and in_use:
                break
            in_use.add(place)
        order.sort(key=in_use.__contains__)
    return Ranked([found[place] for place in order], [values[place] for place in order], least=min(gains, default=0.0))

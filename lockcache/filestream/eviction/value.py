# SPDX-License-Identifier: Apache-2.0
"""Order by value: what saves least for its bytes goes first. Pure.

Decides what an entry is worth, in nanoseconds of compiling for each byte:

    age at its last use + uses x compile cost / bytes

where the age of the directory rises to the value of the last entry that went. That is GDSF, GreedyDual-Size with
frequency (Cherkasova: Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, HP Labs 1998),
which needs no sweep to let values fall: all that is stored or used from now on begins at the age, so what nobody uses
any more goes in the end, however expensive it was. A hit writes nothing for it: the ages of the past are in the state
page (:mod:`.accounting.ages`), the last use is on the disk, uses are counted roughly (:mod:`.accounting.hit_counts`).

An entry whose cost nobody recorded (cuda.core's own cache records none) is taken to cost the median of the others.
The newest entry goes last, and others of the last second up to a sixteenth of the bytes: of a job's processes one has
just stored it, and the others are about to read it. Not all of that second, for a flood of cheap entries would then
drive out all others. Used by eviction, and by ``lockcache-stress simulate``, which therefore simulates the real choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from lockcache.filestream.accounting import Ages, Found
from lockcache.filestream.policy import Priority

#: Nanoseconds that compiling an entry took, as recorded; 0 if that is not known.
CostOf: TypeAlias = Callable[[Found], int]

#: An entry, and its value.
Valued: TypeAlias = tuple[Found, float]

#: How often an entry was hit, by its name.
HitsOf: TypeAlias = Callable[[str], int]

# If no cost is known: the order is then that of uses, bytes and time. Of the size of a real one, for the ages of before
# and after are compared.
_ANY_COST_NS: Final = 10**8

# For how long, and for which share of the bytes, what was used last is taken to be in use.
_IN_USE_NS: Final = 10**9
_IN_USE_SHARE: Final = 16


def _unknown(_: object) -> int:
    """Returns 0: the cost is not known, and no hit."""
    return 0


class Order(NamedTuple):
    """The order of eviction, under what a directory knows of its entries."""

    priority: Priority = "lru"
    cost_of: CostOf = _unknown
    hits_of: HitsOf = _unknown
    ages: Ages = Ages()

    def sort(self, found: Sequence[Found], now_ns: int) -> list[Found]:
        """Returns ``found`` in the order of eviction, the first to go first."""
        return [entry for entry, _ in self.valued(found, now_ns)]

    def valued(self, found: Sequence[Found], now_ns: int) -> list[Valued]:
        """Returns ``found`` in the order of eviction, with their values. Of equal value, the least recently used first.

        Where last use alone counts, all values are 0.
        """
        if self.priority == "lru":
            return [(entry, 0.0) for entry in sorted(found)]
        values = self._values(found)
        in_use = _in_use(found, now_ns)
        ranks = [(entry.name in in_use, value) for entry, value in zip(found, values, strict=True)]
        if len(set(ranks)) == len(ranks):  # the usual case: numbers alone are sorted three times as fast
            order = sorted(range(len(found)), key=ranks.__getitem__)
        else:
            order = sorted(range(len(found)), key=lambda index: (ranks[index], found[index]))
        return [(found[index], values[index]) for index in order]

    def _values(self, found: Sequence[Found]) -> list[float]:
        costs = [self.cost_of(entry) for entry in found]
        known = sorted(cost for cost in costs if cost > 0)
        typical = known[(len(known) - 1) // 2] if known else _ANY_COST_NS
        return [
            self.ages.at(entry.last_use_ns)
            + (1 + self.hits_of(entry.name)) * (cost or typical) / max(1, entry.size_bytes)
            for entry, cost in zip(found, costs, strict=True)
        ]


def _in_use(found: Sequence[Found], now_ns: int) -> set[str]:
    """Returns the names of the entries that were used last, at least one if any was within the last second."""
    recent = sorted((entry for entry in found if entry.last_use_ns > now_ns - _IN_USE_NS), reverse=True)
    left_bytes = sum(entry.size_bytes for entry in found) // _IN_USE_SHARE if recent else 0
    in_use = set[str]()
    for entry in recent:
        left_bytes -= entry.size_bytes
        if left_bytes < 0 and in_use:
            break
        in_use.add(entry.name)
    return in_use

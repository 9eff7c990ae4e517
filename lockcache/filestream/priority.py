"""In which order entries go when room is needed: the least recently used first, or the least worth keeping. Pure.

``cost`` keeps what is dear to rebuild. An entry is worth

    compile cost / (bytes x time since its last use)

and those worth least go first. That is the profit of LNC-R (Scheuermann, Shim, Vingralek: WATCHMAN, VLDB 1996) with the
one reference that a directory remembers, the last, and it evicts what GreedyDual-Size (Cao, Irani: Cost-Aware WWW Proxy
Caching Algorithms, USITS 1997) evicts: an entry stays for a time in proportion to its cost per byte, and the worth at
which an eviction stops plays the part of that algorithm's inflation value. It needs nothing that is not on disk, has
nothing to tune, and what nobody uses any more goes in the end, however dear it was.

An entry whose cost nobody recorded (cuda.core's own cache records none) is taken to cost the median of the others.

Relied on by eviction and by ``lockcache-stress simulate``, so that what is simulated is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

from lockcache.filestream.scan import Found

__all__ = ["PRIORITIES", "CostOf", "Priority", "least_worth_first"]

#: Which of two entries goes first: the less recently used, or the one that is worth less.
Priority = Literal["lru", "cost"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)

#: Nanoseconds that compiling an entry took, as recorded; 0 if that is not known.
CostOf = Callable[[Found], int]

# Clocks of several hosts differ, and what was used this very moment is not worth infinitely much.
_SHORTEST_IDLE_NS: Final = 10**6

# Where nothing says what anything costs, any number will do: the order is then that of bytes x time.
_ANY_COST_NS: Final = 1


def least_worth_first(found: Sequence[Found], cost_of: CostOf, now_ns: int) -> list[Found]:
    """``found`` in the order in which it goes. Equal worth: the least recently used first."""
    costs = [cost_of(entry) for entry in found]
    known = sorted(cost for cost in costs if cost > 0)
    typical = known[(len(known) - 1) // 2] if known else _ANY_COST_NS
    worth = [
        (cost or typical) / (max(1, entry.size_bytes) * max(_SHORTEST_IDLE_NS, now_ns - entry.last_use_ns))
        for entry, cost in zip(found, costs, strict=True)
    ]
    if len(set(worth)) == len(worth):  # the usual case: numbers alone are sorted three times as fast
        return [found[index] for index in sorted(range(len(found)), key=worth.__getitem__)]
    return [entry for _, entry in sorted(zip(worth, found, strict=True))]

"""A put of a new key into a full cache, evictions included: at 1,000 and at 50,000 entries, and cuda.core's at 50,000.

The mean is what counts here, since now and then one put pays for the evictions of many; blocks are long enough to hold
several of those, and the median is taken over blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, interleaved, median_us, open_ours, shown
from lockcache_stress.bench.full_directories import ENTRY_BYTES, fill
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, compared, opened

__all__ = ["measure"]

_GROWTH: Final = Bar("<=", 2, "x")
_FASTER: Final = Bar(">=", 500, "x")
# Two evictions of a sixteenth of the sample of 4,096 entries.
_CALLS_PER_BLOCK = 512


def measure(bench: Bench) -> list[Line]:
    """Within 2x of the smaller cache, and at least 500x faster than cuda.core."""
    few, many = bench.pick(1000, 50), bench.pick(50_000, 300)
    small, large = (_putter(open_ours(*fill(bench, OURS, entries)).__setitem__) for entries in (few, many))
    calls = bench.pick(_CALLS_PER_BLOCK, 64)
    times_us = interleaved({"small": small, "large": large}, bench.pick(9, 2), calls, bench.show)
    others_us = {peer.name: _other(bench, peer, many) for peer in compared()}
    theirs_us = others_us.pop(THEIRS.name, None)
    return _lines(few, many, times_us["small"], times_us["large"], theirs_us, others_us)


def _lines(
    few: int,
    many: int,
    small_us: float,
    large_us: float,
    theirs_us: float | None,
    others_us: Mapping[str, float],
) -> list[Line]:
    growth = large_us / small_us
    faster = None if theirs_us is None else theirs_us / large_us
    numbers = {
        "small_us": small_us,
        "large_us": large_us,
        "theirs_us": theirs_us,
        "growth": growth,
        "ratio": faster,
        "others_us": dict(others_us),
    }
    name, ours = f"put into a full cache of {many:,}, mean", f"{large_us:,.1f} us"
    return [
        Line(f"put into a full cache of {few:,}, mean", f"{small_us:,.1f} us"),
        Line(
            name,
            ours,
            **_GROWTH.in_ratio(growth, f" that at {few:,}"),
            is_time=True,
            numbers=numbers,
        ),
        Line(
            "the same against cuda.core",
            ours,
            theirs=shown(theirs_us, "{:,.0f} us"),
            others={each: f"{taken:,.0f} us" for each, taken in others_us.items()},
            **_FASTER.in_ratio(faster, " faster"),
            is_time=True,
        ),
    ]


def _putter(put: Callable[[bytes, bytes], object]) -> Callable[[], object]:
    numbers, value = count(), os.urandom(ENTRY_BYTES)
    return lambda: put(b"new-%d" % next(numbers), value)


def _other(bench: Bench, peer: Peer, entries: int) -> float:
    """A few puts: one of cuda.core's takes half a second at 50,000 entries."""
    path, cap = fill(bench, peer, entries)
    with opened(peer, path, cap) as store:
        return median_us(bench.pick(5, 2), _putter(store.put))

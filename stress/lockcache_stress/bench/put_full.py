"""A put of a new key into a full cache, evictions included: at 1,000 and at 50,000 entries, and cuda.core's at 50,000.

The mean is what counts here, since now and then one put pays for the evictions of many; blocks are long enough to hold
several of those, and the median is taken over blocks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any, Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, interleaved, open_ours, open_theirs, theirs_is_installed
from lockcache_stress.bench.filled import ENTRY_BYTES, fill_ours, fill_theirs

__all__ = ["measure"]

_GROWTH: Final = Bar("<=", 2, "x")
_FASTER: Final = Bar(">=", 500, "x")
# Two evictions of a sixteenth of the sample of 4,096 entries.
_CALLS_PER_BLOCK = 512


def measure(bench: Bench) -> list[Line]:
    """Within 2x of the smaller cache, and at least 500x faster than cuda.core."""
    few, many = bench.pick(1000, 50), bench.pick(50_000, 300)
    small, large = _putter(open_ours(*fill_ours(bench, few))), _putter(open_ours(*fill_ours(bench, many)))
    calls = bench.pick(_CALLS_PER_BLOCK, 64)
    times_us = interleaved({"small": small, "large": large}, bench.pick(9, 2), calls, bench.show)
    return _lines(few, many, times_us["small"], times_us["large"], _theirs(bench, many))


def _lines(few: int, many: int, small_us: float, large_us: float, theirs_us: float | None) -> list[Line]:
    growth = large_us / small_us
    faster = None if theirs_us is None else theirs_us / large_us
    numbers = {"small_us": small_us, "large_us": large_us, "theirs_us": theirs_us, "growth": growth, "ratio": faster}
    name, ours = f"put into a full cache of {many:,}, mean", f"{large_us:,.1f} us"
    return [
        Line(f"put into a full cache of {few:,}, mean", f"{small_us:,.1f} us"),
        Line(
            name,
            ours,
            ratio=f"{_GROWTH.show(growth)} that at {few:,}",
            bar=str(_GROWTH),
            ok=_GROWTH.holds(growth),
            is_time=True,
            numbers=numbers,
        ),
        Line(
            "the same against cuda.core",
            ours,
            theirs="" if theirs_us is None else f"{theirs_us:,.0f} us",
            ratio="" if faster is None else f"{_FASTER.show(faster)} faster",
            bar="" if faster is None else str(_FASTER),
            ok=faster is None or _FASTER.holds(faster),
            is_time=True,
        ),
    ]


def _putter(cache: Any) -> Callable[[], object]:
    numbers, put, value = count(), cache.__setitem__, os.urandom(ENTRY_BYTES)
    return lambda: put(b"new-%d" % next(numbers), value)


def _theirs(bench: Bench, entries: int) -> float | None:
    """A few puts: each takes half a second at 50,000 entries."""
    if not theirs_is_installed():
        return None
    put = _putter(open_theirs(*fill_theirs(bench, entries)))
    times = []
    for _ in range(bench.pick(5, 2)):
        began = time.perf_counter_ns()
        put()
        times.append((time.perf_counter_ns() - began) / 1000)
    return median(times)

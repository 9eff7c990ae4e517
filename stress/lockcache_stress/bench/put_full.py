"""A put of a new key into a full cache, evictions included: at 1,000 and at 50,000 entries, and cuda.core's at 50,000.

The mean is what counts here, since now and then one put pays for the evictions of many; blocks are long enough to hold
several of those, and the median is taken over blocks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from itertools import count
from statistics import median
from typing import Any, Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, interleaved, open_ours, open_theirs, theirs_is_installed
from lockcache_stress.bench.full_directories import ENTRY_BYTES, fill_other, fill_ours, fill_theirs
from lockcache_stress.bench.peers import Peer, opened, others

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
    theirs_us = _theirs(bench, many)
    others_us = {peer.name: _other(bench, peer, many) for peer in others()}
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
            others={each: f"{taken:,.0f} us" for each, taken in others_us.items()},
            ratio="" if faster is None else f"{_FASTER.show(faster)} faster",
            bar="" if faster is None else str(_FASTER),
            ok=faster is None or _FASTER.holds(faster),
            is_time=True,
        ),
    ]


def _putter(cache: Any) -> Callable[[], object]:
    return _caller(cache.__setitem__)


def _caller(put: Callable[[bytes, bytes], object]) -> Callable[[], object]:
    numbers, value = count(), os.urandom(ENTRY_BYTES)
    return lambda: put(b"new-%d" % next(numbers), value)


def _theirs(bench: Bench, entries: int) -> float | None:
    """A few puts: each takes half a second at 50,000 entries."""
    if not theirs_is_installed():
        return None
    return _median_us(bench, _putter(open_theirs(*fill_theirs(bench, entries))))


def _other(bench: Bench, peer: Peer, entries: int) -> float:
    path, cap = fill_other(bench, peer, entries)
    with opened(peer, path, cap) as store:
        return _median_us(bench, _caller(store.put))


def _median_us(bench: Bench, put: Callable[[], object]) -> float:
    times = []
    for _ in range(bench.pick(5, 2)):
        began = time.perf_counter_ns()
        put()
        times.append((time.perf_counter_ns() - began) / 1000)
    return median(times)

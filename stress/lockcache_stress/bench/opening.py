"""Opening a capped directory that holds 10 and 50,000 entries: it must not walk them."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, interleaved, open_ours, open_theirs, theirs_is_installed
from lockcache_stress.bench.filled import fill_ours, fill_theirs

__all__ = ["measure"]

_FEW: Final = 10
_BAR: Final = Bar("<=", 1.5, "x")


def measure(bench: Bench) -> list[Line]:
    """The same time at both sizes, within 1.5x for noise."""
    many = bench.pick(50_000, 300)
    few_path, few_cap = fill_ours(bench, _FEW)
    many_path, many_cap = fill_ours(bench, many)
    actions = {"few": partial(open_ours, few_path, few_cap), "many": partial(open_ours, many_path, many_cap)}
    times_us = interleaved(actions, bench.pick(101, 5), 1, bench.show)
    few_us, many_us = times_us["few"], times_us["many"]
    theirs_us = _theirs(bench, many)
    growth = many_us / few_us
    return [
        Line(f"open, capped, {_FEW} entries", f"{few_us:,.0f} us"),
        Line(
            f"open, capped, {many:,} entries",
            f"{many_us:,.0f} us",
            theirs="" if theirs_us is None else f"{theirs_us:,.0f} us",
            ratio=f"{_BAR.show(growth)} that at {_FEW}",
            bar=str(_BAR),
            ok=_BAR.holds(growth),
            is_time=True,
            numbers={"few_us": few_us, "many_us": many_us, "theirs_us": theirs_us, "growth": growth},
        ),
    ]


def _theirs(bench: Bench, entries: int) -> float | None:
    if not theirs_is_installed():
        return None
    path, cap = fill_theirs(bench, entries)
    times = []
    for _ in range(bench.pick(5, 2)):
        began = time.perf_counter_ns()
        open_theirs(path, cap)
        times.append((time.perf_counter_ns() - began) / 1000)
    return median(times)

"""Opening a capped directory that holds 10 and 50,000 entries: it must not walk them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, interleaved, open_ours, open_theirs, theirs_is_installed
from lockcache_stress.bench.full_directories import fill_other, fill_ours, fill_theirs
from lockcache_stress.bench.peers import Peer, others

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
    others_us = {peer.name: _other(bench, peer, many) for peer in others()}
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
            others={name: f"{taken:,.0f} us" for name, taken in others_us.items()},
            numbers={
                "few_us": few_us,
                "many_us": many_us,
                "theirs_us": theirs_us,
                "growth": growth,
                "others_us": others_us,
            },
        ),
    ]


def _theirs(bench: Bench, entries: int) -> float | None:
    if not theirs_is_installed():
        return None
    path, cap = fill_theirs(bench, entries)
    return _median_us(bench, partial(open_theirs, path, cap))


def _other(bench: Bench, peer: Peer, entries: int) -> float:
    path, cap = fill_other(bench, peer, entries)
    return _median_us(bench, lambda: peer.open(path, cap), lambda store: store.close())


def _median_us(bench: Bench, open_it: Callable[[], Any], close: Callable[[Any], object] = lambda opened: None) -> float:
    times = []
    for _ in range(bench.pick(5, 2)):
        began = time.perf_counter_ns()
        opened = open_it()
        times.append((time.perf_counter_ns() - began) / 1000)
        close(opened)
    return median(times)

"""Opening a capped directory that holds 10 and 50,000 entries: it must not walk them."""

from __future__ import annotations

from functools import partial
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, interleaved, median_us, open_ours, shown
from lockcache_stress.bench.full_directories import fill
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, compared

__all__ = ["measure"]

_FEW: Final = 10
_BAR: Final = Bar("<=", 1.5, "x")


def measure(bench: Bench) -> list[Line]:
    """The same time at both sizes, within 1.5x for noise."""
    many = bench.pick(50_000, 300)
    actions = {name: partial(open_ours, *fill(bench, OURS, size)) for name, size in (("few", _FEW), ("many", many))}
    times_us = interleaved(actions, bench.pick(101, 5), 1, bench.show)
    few_us, many_us = times_us["few"], times_us["many"]
    others_us = {peer.name: _other(bench, peer, many) for peer in compared()}
    theirs_us = others_us.pop(THEIRS.name, None)
    growth = many_us / few_us
    return [
        Line(f"open, capped, {_FEW} entries", f"{few_us:,.0f} us"),
        Line(
            f"open, capped, {many:,} entries",
            f"{many_us:,.0f} us",
            theirs=shown(theirs_us, "{:,.0f} us"),
            **_BAR.in_ratio(growth, f" that at {_FEW}"),
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


def _other(bench: Bench, peer: Peer, entries: int) -> float:
    path, cap = fill(bench, peer, entries)
    return median_us(bench.pick(5, 2), lambda: peer.open(path, cap), lambda store: store.close())

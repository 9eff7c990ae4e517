"""Sixteen writers with values of a third of the cap each: the scenario of that name, for a few seconds."""

from __future__ import annotations

from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.run import Options, run_bytes
from lockcache_stress.scenarios import BIG_VALUES

__all__ = ["measure"]

_BAR: Final = Bar("<=", 1, " x cap")


def measure(bench: Bench) -> list[Line]:
    """All end, none hangs, and the cap holds."""
    processes, cap = bench.pick(BIG_VALUES.processes, 4), BIG_VALUES.max_size_bytes
    directory = bench.directory("big-values")
    options = Options(processes, bench.pick(6, 1), cap, seed=1, directory=directory)
    with bench.attending(directory, cap):
        outcome = run_bytes(BIG_VALUES, options, lambda _, share, words: bench.show(share, words))
    peak, ended_badly = outcome.peaks.disk_bytes / cap, len(outcome.deaths)
    puts, dropped = outcome.totals["puts"], outcome.totals["dropped"]
    return [
        Line(
            f"{processes} writers of a third of the cap each, hung or dead",
            str(ended_badly),
            ratio=f"{puts:,} puts",
            bar="0",
            ok=not ended_badly and puts > 0,
            numbers={"processes": processes, "deaths": outcome.deaths, "puts": puts, "dropped": dropped},
        ),
        Line(
            "the same, peak",
            _BAR.show(peak, 3),
            ratio=f"{outcome.peaks.samples:,} samples",
            bar=str(_BAR),
            ok=_BAR.holds(peak),
            numbers={"ours_over_cap": peak, "samples": outcome.peaks.samples},
        ),
    ]

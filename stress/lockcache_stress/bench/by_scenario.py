"""Two scenarios as measurements: sixteen writers of large values, and 30 SIGKILLs of writers at random moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.plan import Scenario
from lockcache_stress.run import Options, Outcome, drift_bytes, run_bytes
from lockcache_stress.scenarios import BIG_VALUES, KILL

__all__ = ["measure_big_values", "measure_kills"]

_BAR: Final = Bar("<=", 1, " x cap")


def measure_big_values(bench: Bench) -> list[Line]:
    """Values of a third of the cap each: all writers end, none hangs, and the cap holds."""
    processes = bench.pick(BIG_VALUES.processes, 4)
    outcome, _ = _run(bench, BIG_VALUES, processes, bench.pick(6, 1))
    peak, ended_badly = outcome.peaks.disk_bytes / BIG_VALUES.max_size_bytes, len(outcome.deaths)
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
            **_BAR.judged(peak),
            numbers={"ours_over_cap": peak, "samples": outcome.peaks.samples},
        ),
    ]


def measure_kills(bench: Bench) -> list[Line]:
    """Every entry whole, and after one recount the accounting equals the disk."""
    scenario = replace(KILL, kills=bench.pick(KILL.kills, 3))
    outcome, directory = _run(bench, scenario, bench.pick(scenario.processes, 3), bench.pick(15, 3))
    return [_whole(outcome, scenario.kills), _drift(directory)]


def _run(bench: Bench, scenario: Scenario, processes: int, seconds: float) -> tuple[Outcome, str]:
    directory = bench.directory(scenario.name)
    options = Options(processes, seconds, scenario.max_size_bytes, seed=1, directory=directory)
    with bench.attending(directory, scenario.max_size_bytes):
        return run_bytes(scenario, options, lambda _, share, words: bench.show(share, words)), directory


def _whole(outcome: Outcome, wanted: int) -> Line:
    left = next(check for check in outcome.extra_checks if check.name == "entries left, not whole")
    wrong_reads = sum(outcome.totals[name] for name in ("torn", "stale", "foreign"))
    return Line(
        f"{outcome.kills} SIGKILLs of writers, entries not whole",
        left.value,
        ratio=f"{outcome.totals['hits']:,} hits, {wrong_reads} wrong",
        bar="0",
        # Fewer kills than asked for (a machine so busy that nobody was at work yet) prove less than the line says.
        ok=left.ok and not wrong_reads and not outcome.deaths and outcome.kills == wanted,
        numbers={
            "kills": outcome.kills,
            "kills_wanted": wanted,
            "entries_not_whole": int(left.value.split()[0]),
            "wrong_reads": wrong_reads,
            "deaths": outcome.deaths,
        },
    )


def _drift(directory: str) -> Line:
    """The scenario ended with one recount; here its result is only read."""
    drift = drift_bytes(directory)
    return Line(
        "the same, drift after one recount",
        f"{drift:,} bytes",
        bar="0",
        ok=drift == 0,
        numbers={"drift_bytes": drift},
    )

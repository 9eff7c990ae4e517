"""30 SIGKILLs of writers at random moments: the kill scenario, and what it left behind."""

from __future__ import annotations

from dataclasses import replace

from lockcache import FileStreamProgramCache
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.run import Options, Outcome, bytes_on_disk, run_bytes
from lockcache_stress.scenarios import KILL

__all__ = ["measure"]


def measure(bench: Bench) -> list[Line]:
    """Every entry whole, and after one recount the accounting equals the disk."""
    scenario = replace(KILL, kills=bench.pick(KILL.kills, 3))
    processes, directory = bench.pick(scenario.processes, 3), bench.directory("kills")
    options = Options(processes, bench.pick(15, 3), scenario.max_size_bytes, seed=1, directory=directory)
    with bench.attending(directory, scenario.max_size_bytes):
        outcome = run_bytes(scenario, options, lambda _, share, words: bench.show(share, words))
    return [_whole(outcome, scenario.kills), _drift(directory)]


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
    drift_bytes = FileStreamProgramCache(directory).stats().bytes - bytes_on_disk(directory)
    return Line(
        "the same, drift after one recount",
        f"{drift_bytes:,} bytes",
        bar="0",
        ok=drift_bytes == 0,
        numbers={"drift_bytes": drift_bytes},
    )

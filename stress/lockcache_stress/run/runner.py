"""Runs one scenario: starts the workers, watches the disk while they work, and gathers what they found.

Whatever happens (Ctrl-C, a worker that hangs, an error here), no worker is left when :func:`run` returns or raises.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from glob import glob
from typing import Any, Final

from lockcache_stress.plan import ALWAYS_NEEDED, OVERTIME_SECONDS, Plan
from lockcache_stress.run.counters import Counters, Latencies
from lockcache_stress.run.outcome import Outcome
from lockcache_stress.run.sampler import Sampler
from lockcache_stress.run.workers import Crew, Ranks, Workers

#: Called with a share of the work done (0 to 1) and the counters.
Progress = Callable[[float, Counters], None]

_TICK_SECONDS: Final = 0.002
_SHOW_SECONDS: Final = 0.2


def run(plan: Plan, *, kills: int, is_own_mount: bool, progress: Progress) -> Outcome:
    """Run ``plan`` to its end, SIGKILLing a worker ``kills`` times on the way."""
    sampler = Sampler(plan.directory, is_own_mount=is_own_mount)
    workers: Workers = Ranks(plan) if plan.extra.get("mpi") else Crew(plan)
    with workers as crew:
        crew.wait_until_ready()
        began = time.monotonic()
        crew.go()
        _watch(plan, crew, sampler, _kill_times(plan, kills), progress)
        crew.finish()
    sampler.sample_final()
    outcome = Outcome(plan, peaks=sampler.peaks, deaths=crew.deaths, kills=crew.kills)
    outcome.seconds = time.monotonic() - began
    _gather(outcome, crew.counters)
    return outcome


def _watch(plan: Plan, crew: Workers, sampler: Sampler, kill_times: list[float], progress: Progress) -> None:
    began = shown = time.monotonic()
    kills = len(kill_times)
    while crew.is_working():
        passed = time.monotonic() - began
        if passed > plan.seconds and (passed > plan.seconds + OVERTIME_SECONDS or _has_evidence(plan, crew, kills)):
            return
        if plan.fail_fast and _is_wrong(plan, crew, sampler):
            return
        if plan.samples:
            sampler.sample(crew.pids())
        if kill_times and passed >= kill_times[0] and crew.kill_one():
            kill_times.pop(0)
        if time.monotonic() - shown > _SHOW_SECONDS:
            shown = time.monotonic()
            progress(min(1.0, passed / plan.seconds), crew.counters)
        time.sleep(_TICK_SECONDS)


def _has_evidence(plan: Plan, crew: Workers, kills: int) -> bool:
    """Whether all that the run is about has happened: zero of it would be a failure, and nobody's fault."""
    needed = (*ALWAYS_NEEDED, *plan.must_happen, *plan.needs)
    return all(crew.counters.total(name) for name in needed) and crew.kills >= min(kills, 1)


def _is_wrong(plan: Plan, crew: Workers, sampler: Sampler) -> bool:
    peaks = sampler.peaks
    reads = any(crew.counters.total(name) for name in ("torn", "stale", "foreign"))
    return reads or bool(crew.deaths) or peaks.disk_bytes > plan.max_size_bytes or peaks.unaccounted_bytes > 0


def _kill_times(plan: Plan, kills: int) -> list[float]:
    """When to kill, in seconds from the begin: at random, and not in the last fifth, so that successors get to work."""
    rng = random.Random(f"{plan.seed}/kills")
    return sorted(rng.uniform(0.02, 0.8) * plan.seconds for _ in range(kills))


def _gather(outcome: Outcome, counters: Counters) -> None:
    outcome.totals = counters.totals()
    outcome.findings.extend(read_findings(outcome.plan.control))
    for path in glob(os.path.join(outcome.plan.control, "latencies-*.json")):
        with open(path) as file:
            found = json.load(file)
        outcome.gets.merge(Latencies(found.get("get")))
        outcome.puts.merge(Latencies(found.get("put")))


def read_findings(control: str) -> list[dict[str, Any]]:
    """Returns what workers wrote down; a last line that was cut is left out."""
    found: list[dict[str, Any]] = []
    for path in sorted(glob(os.path.join(control, "findings-*.jsonl"))):
        with open(path) as file:
            found.extend(json.loads(line) for line in file if line.endswith("\n"))
    return found

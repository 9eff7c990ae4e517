# SPDX-License-Identifier: Apache-2.0
"""Runs one scenario: starts the workers, watches the disk while they work, and gathers their findings.

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
from lockcache_stress.processes import Patience
from lockcache_stress.run.counters import Counters, Latencies
from lockcache_stress.run.outcome import Outcome
from lockcache_stress.run.sampler import Sampler
from lockcache_stress.run.workers import Ranks, SpawnedWorkers, Workers

#: Called with a share of the work done (0 to 1) and the counters.
Progress = Callable[[float, Counters], None]

_TICK_SECONDS: Final = 0.002
_SHOW_SECONDS: Final = 0.2


def run(plan: Plan, *, kills: int, is_own_mount: bool, progress: Progress) -> Outcome:
    """Run ``plan`` to its end, and SIGKILL a worker ``kills`` times meanwhile."""
    sampler = Sampler(plan.directory, is_own_mount=is_own_mount)
    workers: Workers = Ranks(plan) if plan.extra.get("mpi") else SpawnedWorkers(plan)
    with workers:
        workers.wait_until_ready()
        began = time.monotonic()
        workers.go()
        _watch(plan, workers, sampler, _kill_times(plan, kills), progress)
        workers.finish()
    sampler.sample_final()
    outcome = Outcome(plan, peaks=sampler.peaks, deaths=workers.deaths, kills=workers.kills)
    outcome.seconds = time.monotonic() - began
    _gather(outcome, workers.counters)
    return outcome


def _watch(plan: Plan, workers: Workers, sampler: Sampler, kill_times: list[float], progress: Progress) -> None:
    began = shown = time.monotonic()
    kills = len(kill_times)
    overtime: Patience | None = None
    while workers.is_working():
        passed = time.monotonic() - began
        if passed > plan.seconds:
            overtime = overtime or Patience(OVERTIME_SECONDS)
            if overtime.is_over() or _has_evidence(plan, workers, kills):
                return
        if plan.fail_fast and _is_wrong(plan, workers, sampler):
            return
        if plan.samples:
            sampler.sample(workers.pids())
        if kill_times and passed >= kill_times[0] and workers.kill_one():
            kill_times.pop(0)
        if time.monotonic() - shown > _SHOW_SECONDS:
            shown = time.monotonic()
            progress(min(1.0, passed / plan.seconds), workers.counters)
        time.sleep(_TICK_SECONDS)


def _has_evidence(plan: Plan, workers: Workers, kills: int) -> bool:
    """Returns whether everything has happened that the run must prove: a count of zero would be a failure."""
    needed = (*ALWAYS_NEEDED, *plan.must_happen, *plan.needs)
    return all(workers.counters.total(name) for name in needed) and workers.kills >= min(kills, 1)


def _is_wrong(plan: Plan, workers: Workers, sampler: Sampler) -> bool:
    peaks = sampler.peaks
    reads = any(workers.counters.total(name) for name in ("torn", "stale", "foreign"))
    return reads or bool(workers.deaths) or peaks.disk_bytes > plan.max_size_bytes or peaks.unaccounted_bytes > 0


def _kill_times(plan: Plan, kills: int) -> list[float]:
    """Returns the random times of kills, in seconds from the begin; none in the last fifth, so that successors work."""
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
    """Returns the findings that workers wrote, and where those were that hung; an incomplete last line is left out."""
    found: list[dict[str, Any]] = []
    for path in sorted(glob(os.path.join(control, "stacks-*"))):
        with open(path, errors="replace") as file:
            if stacks := file.read():
                found.append({"error": f"worker {path.rpartition('-')[2]} hung:\n{stacks}"})
    for path in sorted(glob(os.path.join(control, "findings-*.jsonl"))):
        with open(path) as file:
            found.extend(json.loads(line) for line in file if line.endswith("\n"))
    return found

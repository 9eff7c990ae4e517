"""Runs one scenario: starts the workers, watches the disk while they work, and gathers what they found.

Whatever happens (Ctrl-C, a worker that hangs, an error here), no worker is left when :func:`run` returns or raises.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from glob import glob
from multiprocessing.process import BaseProcess
from typing import Any, Final

from lockcache_stress.plan import ALWAYS_NEEDED, OVERTIME_SECONDS, Plan, now_us
from lockcache_stress.run.counters import Counters
from lockcache_stress.run.group import Workers, start_process
from lockcache_stress.run.latency import Latencies
from lockcache_stress.run.mpi_workers import Ranks
from lockcache_stress.run.outcome import Outcome
from lockcache_stress.run.sampler import Sampler
from lockcache_stress.run.worker import run_worker

__all__ = ["Progress", "run"]

#: Called with a share of the work done (0 to 1) and the counters.
Progress = Callable[[float, Counters], None]

_TICK_SECONDS: Final = 0.002
_SHOW_SECONDS: Final = 0.2


def run(plan: Plan, *, kills: int, is_own_mount: bool, progress: Progress) -> Outcome:
    """Run ``plan`` to its end, SIGKILLing a worker ``kills`` times on the way."""
    sampler = Sampler(plan.directory, is_own_mount=is_own_mount)
    workers: Workers = Ranks(plan) if plan.extra.get("mpi") else _Crew(plan)
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


class _Crew(Workers):
    """The worker processes of one run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._epoch_us = now_us()
        self._rng = random.Random(f"{plan.seed}/victims")
        self._workers: dict[int, tuple[BaseProcess, int]] = {}
        self._next_writer = 0

    def __enter__(self) -> _Crew:
        try:
            for index in range(self._plan.processes):
                self._start(index)
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def pids(self) -> Iterator[int]:
        return (process.pid for process, _ in self._workers.values() if process.pid is not None)

    def is_working(self) -> bool:
        self._reap()
        return bool(self._workers)

    def kill_one(self) -> bool:
        at_work = [writer for writer in self._workers if self.counters.get(writer, "operations")]
        if not at_work or self._next_writer >= self._plan.columns:
            return False
        writer = self._rng.choice(at_work)
        process, index = self._workers.pop(writer)
        process.kill()
        process.join()
        process.close()
        self.kills += 1
        self._start(index)
        return True

    def hung(self) -> list[str]:
        return [f"worker {writer}" for writer in self._workers]

    def _start(self, index: int) -> None:
        writer, self._next_writer = self._next_writer, self._next_writer + 1
        process = start_process(run_worker, self._plan, writer, index, self._epoch_us)
        self._workers[writer] = (process, index)

    def _reap(self) -> None:
        for writer, (process, _) in list(self._workers.items()):
            if process.is_alive():
                continue
            if process.exitcode:
                self.deaths.append(f"worker {writer} ended with {_exit_text(process.exitcode)}")
            process.close()
            del self._workers[writer]

    def _end_all(self) -> None:
        for process, _ in self._workers.values():
            process.kill()
        for process, _ in self._workers.values():
            process.join()
            process.close()
        self._workers.clear()


def _gather(outcome: Outcome, counters: Counters) -> None:
    outcome.totals = counters.totals()
    for path in sorted(glob(os.path.join(outcome.plan.control, "findings-*.jsonl"))):
        with open(path) as file:
            outcome.findings.extend(json.loads(line) for line in file if line.endswith("\n"))
    for path in glob(os.path.join(outcome.plan.control, "latencies-*.json")):
        found = _load(path)
        outcome.gets.merge(Latencies(found.get("get")))
        outcome.puts.merge(Latencies(found.get("put")))


def _load(path: str) -> dict[str, Any]:
    with open(path) as file:
        found: dict[str, Any] = json.load(file)
    return found


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

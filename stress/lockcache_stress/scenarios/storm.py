# SPDX-License-Identifier: Apache-2.0
"""Everything at once under a cap of a few entries: kills, stops, deletes, computations, ``clear()``.

Proves that what each of the other scenarios proves of one kind of trouble holds where they meet: no byte that nobody
stored, no older value, no process that waits for a dead or a stopped one for longer than the lock's timeout, and exact
accounting after one ``recount()``. This is the first thing that somebody tries who wants to break the store.
"""

from __future__ import annotations

import os
import signal
import subprocess

from lockcache_stress.plan import Scenario, Step
from lockcache_stress.run import Check, Outcome, Worker, some

_SIZES = (200, 4_000, 30_000)
_CLEARS = 0.0005
_STOPS = 0.002
_LONGEST_STOP_SECONDS = 0.2


def make_step(worker: Worker) -> Step:
    """Returns the step: any operation, and now and then ``clear()`` or a stop at whatever point of the run."""
    rng = worker.rng

    def step() -> bool:
        roll = rng.random()
        if roll < _CLEARS:
            worker.cache.clear()
        elif roll < _CLEARS + _STOPS:
            _stop(rng.uniform(0.01, _LONGEST_STOP_SECONDS))
            worker.count("troubles")
        return worker.use(rng.randrange(worker.plan.keys), _SIZES, writes=0.4, deletes=0.1, computes=0.15)

    return step


def _stop(seconds: float) -> None:
    """Have this process stopped in the middle of what it does next, and continued by another one."""
    # By its number: a program that stops itself would stop between two operations, and hold nothing.
    pid = os.getpid()
    script = f"sleep 0.00$(($$ % 9)); kill -{signal.SIGSTOP:d} {pid}; sleep {seconds}; kill -{signal.SIGCONT:d} {pid}"
    subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL)


def _checks(outcome: Outcome) -> list[Check]:
    return [some("stops of a process", outcome.totals["troubles"])]


SCENARIO = Scenario(
    "storm",
    "kills, stops, deletes, computations and clear() at once",
    make_step,
    processes=10,
    max_size_bytes=300_000,
    keys=64,
    kills=30,
    checks=_checks,
    needs=("troubles",),
)

# SPDX-License-Identifier: Apache-2.0
"""Sixteen writers with values of a third of the cap each: at most three fit, and reservations collide all the time.

Proves that all of them go on (none waits for ever for room that others hold) and that the cap holds all the while.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker


def make_step(worker: Worker) -> Step:
    """Returns the step: write a value of a third of the cap, and read one back."""
    size = worker.plan.max_size_bytes // 3

    def step() -> bool:
        key = worker.rng.randrange(worker.plan.keys)
        worker.put(key, size)
        worker.get(key)
        return True

    return step


SCENARIO = Scenario(
    "big-values",
    "sixteen writers with values of a third of the cap",
    make_step,
    processes=16,
    max_size_bytes=3 * MIB,
    keys=24,
)

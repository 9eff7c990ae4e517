# SPDX-License-Identifier: Apache-2.0
"""Evictors against rewriters: entries are chosen as victims while others write and read exactly those.

Half of the processes fill the cap with values that no process reads again, which forces evictions at every put; now and
then they ``clear()`` everything. The other half rewrite a few keys and read them back. Proves that an eviction never
removes the accounting of a newer value, never brings an older value back, and that the cap holds at every put.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_HOT = 8
_CLEARS = 0.001
# The share of evictions in which one victim is used between its choice and its removal.
_USES_OF_VICTIMS = 0.25


def make_step(worker: Worker) -> Step:
    """Returns the step: odd processes evict, even ones rewrite."""
    return _evict(worker) if worker.index % 2 else _rewrite(worker)


def _rewrite(worker: Worker) -> Step:
    rng = worker.rng

    def step() -> bool:
        key = rng.randrange(_HOT)
        if rng.random() < 0.5:
            worker.put(key, rng.randrange(100, 60_000))
        worker.get(key)
        return True

    return step


def _evict(worker: Worker) -> Step:
    rng = worker.rng
    worker.history.meddle(_USES_OF_VICTIMS)

    def step() -> bool:
        if rng.random() < _CLEARS:
            worker.cache.clear()
        worker.put(rng.randrange(_HOT, worker.plan.keys), rng.randrange(20_000, 120_000))
        return True

    return step


SCENARIO = Scenario(
    "evict-rewrite",
    "evictors against rewriters, under a cap of a few entries",
    make_step,
    processes=8,
    max_size_bytes=MIB,
    keys=512,
)

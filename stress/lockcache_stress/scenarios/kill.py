# SPDX-License-Identifier: Apache-2.0
"""Writers are SIGKILLed at random moments, and others take their place.

Proves invariant 5 (death is free): no process waits for a dead one, every readable entry is whole, and after one
``recount()`` the accounting equals the disk exactly (:mod:`lockcache_stress.run.session` checks this at the end).
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker
from lockcache_stress.zipf import Zipf


def make_step(worker: Worker) -> Step:
    """Returns the step: mostly writes, large enough that a kill often falls into one."""
    zipf = Zipf(worker.rng, worker.plan.keys, 0.5)
    return lambda: worker.use(zipf.draw(), (200, 20_000, 1_000_000), writes=0.6, deletes=0.03)


SCENARIO = Scenario(
    "kill",
    "writers are SIGKILLed at random moments, and replaced",
    make_step,
    processes=6,
    max_size_bytes=8 * MIB,
    keys=48,
    kills=30,
)

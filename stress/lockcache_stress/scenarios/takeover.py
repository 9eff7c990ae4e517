# SPDX-License-Identifier: Apache-2.0
"""Daemons that stand by for one another are SIGKILLed, stopped and restarted at random, while writers fill the cap.

Proves that two daemons never keep the directory at once (by the daemons' own logs, on the clock of the whole machine),
that one daemon always takes over, and that neither a death in the middle of a sweep nor a takeover harms the writers:
no read is torn or stale, the cap holds at every moment, and after one ``recount()`` the accounting is exact.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker
from lockcache_stress.zipf import Zipf


def make_step(worker: Worker) -> Step:
    """Returns the step: small values, so that a sweep has many victims and a death often falls into one."""
    zipf = Zipf(worker.rng, worker.plan.keys, 0.7)
    return lambda: worker.use(zipf.draw(), (200, 3000, 30_000), writes=0.5)


SCENARIO = Scenario(
    "takeover",
    "daemons that stand by for one another are SIGKILLed and restarted at random",
    make_step,
    processes=4,
    max_size_bytes=6 * MIB,
    keys=2000,
    daemons=3,
)

# SPDX-License-Identifier: Apache-2.0
"""Every process writes keys of its own and reads everybody's: writers that must not disturb each other.

Proves that writes to different keys lose none of each other's entries, and that the accounting and the cap hold when
all shards are busy.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_KEYS_EACH = 64


def make_step(worker: Worker) -> Step:
    """Returns the step: write an own key, or read any process's."""
    rng = worker.rng
    first = worker.index * _KEYS_EACH

    def step() -> bool:
        if rng.random() < 0.4:
            worker.put(first + rng.randrange(_KEYS_EACH), rng.randrange(100, 40_000))
        else:
            worker.get(rng.randrange(worker.plan.keys))
        return True

    return step


SCENARIO = Scenario(
    "distinct-keys",
    "every process writes keys of its own and reads everybody's",
    make_step,
    processes=8,
    max_size_bytes=6 * MIB,
    keys=0,
    keys_each=_KEYS_EACH,
)

# SPDX-License-Identifier: Apache-2.0
"""A few keys are read all the time while many others are written once: the few must outlive the many.

Proves that a hit is a use, for evictors in other processes too. The cap has room for what is written in some seconds: a
key that is not read for that long is evicted rightly. By last use: the order by value counts more than that.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_HOT = 16
_KEYS = 60_000
_BYTES = 700
# So many writes that they fill the cap within a second or two.
_WRITES = 0.5


def make_step(worker: Worker) -> Step:
    """Returns the step: read a hot key and put it if it is missing, or write one more of the many keys."""
    rng, processes = worker.rng, worker.plan.processes
    following = worker.index + _HOT

    def step() -> bool:
        nonlocal following
        if rng.random() < _WRITES:
            worker.put(following, _BYTES)
            following = following + processes if following + processes < _KEYS else worker.index + _HOT
        else:
            hot = rng.randrange(_HOT)
            if worker.get(hot) is None:
                worker.put(hot, _BYTES)
        return True

    return step


SCENARIO = Scenario(
    "recency",
    "keys that are read all the time stay while others are written",
    make_step,
    processes=4,
    # On ext4 the folders of all shards take half of it.
    max_size_bytes=2 * MIB,
    keys=_KEYS,
    extra={"hot_keys": _HOT, "policy": "lru"},
)

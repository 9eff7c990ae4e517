"""All processes write and read one key: the tightest race between publishing and reading, and of publishers.

Proves invariants 1 and 2 for one name: a read gives one whole value, never one older than a write that had returned.
"""

from __future__ import annotations

from lockcache_stress.judge import SMALLEST_BYTES
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

__all__ = ["SCENARIO"]

_SIZES = (SMALLEST_BYTES, 4096, 65_536, 300_000)


def make_step(worker: Worker) -> Step:
    """Half writes, of very different sizes; half reads; now and then a delete."""
    rng = worker.rng

    def step() -> bool:
        roll = rng.random()
        if roll < 0.02:
            worker.delete(0)
        elif roll < 0.5:
            worker.put(0, rng.choice(_SIZES))
        else:
            worker.get(0)
        return True

    return step


SCENARIO = Scenario(
    "same-key", "every process writes and reads one key", make_step, processes=8, max_size_bytes=8 * MIB, keys=1
)

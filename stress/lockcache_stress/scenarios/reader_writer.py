# SPDX-License-Identifier: Apache-2.0
"""A few writers replace hot entries under many readers: readers take no lock, and must notice no replacement.

Proves invariant 1 (a hit is whole), invariant 2 (last write wins) and invariant 4 (readers never wait) in the hardest
case, in which entries are replaced by a rename while they are open for reading.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker
from lockcache_stress.zipf import Zipf


def make_step(worker: Worker) -> Step:
    """Returns the step: every fourth process writes, the others read; both by Zipf."""
    rng, zipf = worker.rng, Zipf(worker.rng, worker.plan.keys)
    writes = worker.index % 4 == 0

    def step() -> bool:
        if writes:
            worker.put(zipf.draw(), rng.randrange(100, 200_000))
        else:
            worker.get(zipf.draw())
        return True

    return step


SCENARIO = Scenario(
    "reader-writer",
    "a few writers replace hot entries under many readers",
    make_step,
    processes=8,
    max_size_bytes=16 * MIB,
    keys=16,
)

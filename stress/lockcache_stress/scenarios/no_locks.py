# SPDX-License-Identifier: Apache-2.0
"""Locks that exclude nobody: each process has lock files of its own, as on mounts whose ``flock`` stays on its node.

Proves invariant 6 (locks coordinate): no value that is torn or stale is read, because reading needs no lock. The cap
and the accounting need locks: both are only reported while the scenario runs, and one recount at the end must make the
accounting exact.
"""

from __future__ import annotations

import os

from lockcache.lowlevel import Layout
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_HOT = 4


def make_step(worker: Worker) -> Step:
    """Returns the step: a few keys written and read by all, many others that force evictions, and deletes."""
    rng, keys = worker.rng, worker.plan.keys
    folder = os.path.join(worker.plan.control, f"locks-{worker.writer}")
    os.makedirs(folder, mode=0o700)
    # Never restored: the process has no other cache.
    setattr(Layout, "lock", lambda self, shard: f"{folder}/{shard:02x}")  # noqa: B010

    def step() -> bool:
        key = rng.randrange(_HOT) if rng.random() < 0.7 else rng.randrange(_HOT, keys)
        return worker.use(key, (200, 5000, 60_000), writes=0.47, deletes=0.03)

    return step


SCENARIO = Scenario(
    "no-locks",
    "locks exclude nobody, as on mounts whose flock is local",
    make_step,
    processes=6,
    max_size_bytes=2 * MIB,
    keys=200,
    samples=False,
    # Each of these needs a lock: without it, another process changes the directory between a check and its use.
    excused=("peak over cap", "final over cap", "bytes unaccounted for", "evicted though in use"),
    recounts_first=True,
)

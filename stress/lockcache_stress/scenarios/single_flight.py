# SPDX-License-Identifier: Apache-2.0
"""Many processes want the same few keys computed, and computing often fails: no process waits for one that gave up.

Proves the half of compile-once that the herd does not: a computation that raises frees its lease at once, so that the
next waiter computes. A process that waits longer than the lease's timeout has waited for a turn that had ended.
"""

from __future__ import annotations

import time

from lockcache import Entry
from lockcache_stress.errors import ComputeFailedError
from lockcache_stress.judge import Stamp, make_value, stamp_metadata
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_KEYS = 4
_BYTES = 20_000
_FAILURES = 0.3
_DELETES = 0.3
# The time of a computation: much less than a small kernel takes, so that few steps are spent waiting.
_COMPUTE_SECONDS = 0.005
_LEASE_SECONDS = 3.0


def make_step(worker: Worker) -> Step:
    """Returns the step: compute or wait, then now and then delete, so that there is something to compute."""
    rng, plan = worker.rng, worker.plan

    def step() -> bool:
        index = rng.randrange(_KEYS)
        computing = 0.0

        def compute(stamp: Stamp) -> Entry:
            nonlocal computing
            began = time.monotonic()
            time.sleep(_COMPUTE_SECONDS)
            computing = time.monotonic() - began
            if rng.random() < _FAILURES:
                raise ComputeFailedError
            return Entry(make_value(plan.token, index, stamp, _BYTES), stamp_metadata(stamp))

        stamp = worker.register.begin_write(index)
        began = time.monotonic()
        try:
            worker.get_or_write(index, stamp, lambda: compute(stamp), worker.key(index))
        except ComputeFailedError:
            worker.count("failures")
        worker.waited(time.monotonic() - began - computing)
        if rng.random() < _DELETES:
            worker.delete(index)
        return True

    return step


SCENARIO = Scenario(
    "single-flight",
    "many want the same keys computed, and computing often fails",
    make_step,
    processes=8,
    max_size_bytes=MIB,
    keys=_KEYS,
    extra={"cache": {"lease_timeout_seconds": _LEASE_SECONDS}, "longest_wait_seconds": _LEASE_SECONDS},
)

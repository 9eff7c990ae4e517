# SPDX-License-Identifier: Apache-2.0
"""Every process has a clock of its own that jumps by hours, forth and back, while they share a cap and compile once.

The jumps are simulated, because Linux has no namespace for the real-time clock: each worker replaces its ``time.time``
and ``time.time_ns``, the only functions by which the library reads that clock. Times that the kernel sets stay true.
Proves that clocks order evictions and decide nothing else: no read is wrong, the cap holds, no living writer's staged
file is taken for a dead writer's, and no process waits longer for a lease.
"""

from __future__ import annotations

import time

from lockcache.filestream.disk import recency
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_KEYS = 60
_FARTHEST_NS = 48 * 3600 * 10**9
_JUMPS = 0.02
_RECOUNTS = 0.002
_LEASE_SECONDS = 10.0


class _Clock:
    """The clock of this process, which can be set off from the real one."""

    def __init__(self) -> None:
        self.offset_ns = 0
        self._real_ns = time.time_ns

    def time_ns(self) -> int:
        return self._real_ns() + self.offset_ns

    def time(self) -> float:
        return self.time_ns() / 1e9

    def install(self) -> None:
        """Put this clock in the place of the process's own, for good."""
        for name in ("time", "time_ns"):
            setattr(time, name, getattr(self, name))
            if not hasattr(recency, f"_{name}"):
                raise AttributeError(f"recency has no _{name} any more: this scenario must follow")
            setattr(recency, f"_{name}", getattr(self, name))


def make_step(worker: Worker) -> Step:
    """Returns the step: write, read and compute; now and then the clock jumps, and rarely a recount reaps."""
    rng, clock = worker.rng, _Clock()
    clock.install()

    def step() -> bool:
        if rng.random() < _JUMPS:
            clock.offset_ns = rng.randrange(-_FARTHEST_NS, _FARTHEST_NS)
            worker.count("troubles")
        if rng.random() < _RECOUNTS:
            worker.recount()
        return worker.use(rng.randrange(_KEYS), (300, 9000, 50_000), writes=0.4, computes=0.1)

    return step


SCENARIO = Scenario(
    "clock-jumps",
    "every process's clock jumps by hours",
    make_step,
    processes=4,
    max_size_bytes=MIB,
    keys=_KEYS,
    must_happen={"troubles": "jumps of clocks"},
    extra={"cache": {"lease_timeout_seconds": _LEASE_SECONDS}, "longest_wait_seconds": _LEASE_SECONDS},
)

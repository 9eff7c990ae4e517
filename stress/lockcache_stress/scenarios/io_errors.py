# SPDX-License-Identifier: Apache-2.0
"""The disk answers random calls with errors, in bursts: a FUSE file system that fails on purpose, ``close`` included.

The first process sets how often the disk fails, the others write, read and delete. Proves invariant 7 (never take the
job down): no process dies or hangs because of the errors; and that all reads are whole and not stale. A miss may mean
that the disk did not answer, and proves nothing. If every try to remove an older value fails, the library logs this;
then the value may be read, and is not judged.
"""

from __future__ import annotations

import time

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Check, Worker
from lockcache_stress.trouble import mount_failing_disk, set_failures, why_no_fuse

_KEYS = 24
_SHARES = (0.005, 0.02, 0.1, 0.5)
_LONGEST_SECONDS = 0.3


def make_step(worker: Worker) -> Step:
    """Returns the step: the first process has calls fail, the others write and read."""
    return _fail(worker) if worker.index == 0 else _use(worker)


def _use(worker: Worker) -> Step:
    rng = worker.rng

    def step() -> bool:
        key = rng.randrange(_KEYS)
        if rng.random() >= 0.03:
            return worker.use(key, (200, 5000, 60_000), writes=0.41)
        try:
            worker.delete(key)
        except OSError:
            worker.count("refused")  # the process that deletes has to learn that the entry is still there
        return True

    return step


def _fail(worker: Worker) -> Step:
    rng, plan = worker.rng, worker.plan

    def step() -> bool:
        set_failures(plan.directory, share=rng.choice(_SHARES))
        time.sleep(rng.uniform(0.05, _LONGEST_SECONDS))
        set_failures(plan.directory, share=0)
        worker.count("troubles")
        worker.recount()  # as a daemon does: reservations that could not be returned occupy room that no entry uses
        time.sleep(rng.uniform(0.05, _LONGEST_SECONDS))
        return True

    return step


SCENARIO = Scenario(
    "io-errors",
    "the disk answers EIO, ESTALE, EINTR and ENOSPC at random",
    make_step,
    processes=5,
    max_size_bytes=MIB // 2,
    keys=_KEYS,
    place=mount_failing_disk,
    why_not=why_no_fuse,
    samples=False,
    excused=(
        "dropped, older value kept",
        "peak over cap",
        "final over cap",
        "bytes unaccounted for",
        "evicted though in use",
    ),
    recounts_first=True,
    misses_tell_nothing=True,
    checks=lambda outcome: [Check("deletes that said an error", f"{outcome.totals['refused']:,}")],
    must_happen={"troubles": "bursts of errors"},
)

# SPDX-License-Identifier: Apache-2.0
"""Values far smaller than a block of the disk, and a little larger than one, written until the cache is full twice.

Proves invariant 3 (hard cap) for what a disk holds and not only for what was written: a value of 500 bytes takes 4,096.
On a tmpfs (as root) statvfs is read all the time: its count is never above the cap, and comes near the cap, so that the
accounting does not count much more than the disk holds.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Check, Outcome, Worker

_PUTS_EACH = 1200
# The bytes of a template's name, of a small kernel's PTX, of a small cubin, and of a cubin of the usual size.
_SIZES = (500, 3300, 5100, 20_000)
_LEAST_FULL = 0.75


def make_step(worker: Worker) -> Step:
    """Returns the step: a write of each size in turn, each to a key of its own, each read back at once."""
    return worker.put_own(_PUTS_EACH, _SIZES)


def _checks(outcome: Outcome) -> list[Check]:
    peak, cap = outcome.peaks.statvfs_bytes, outcome.plan.max_size_bytes
    if peak is None:
        return []
    return [
        Check("statvfs peak over cap", f"{peak / cap:.3f}", "<= 1", peak <= cap),
        Check("statvfs peak over cap, at least", f"{peak / cap:.3f}", f">= {_LEAST_FULL}", peak >= _LEAST_FULL * cap),
    ]


SCENARIO = Scenario(
    "small-values",
    "values of 500 B to 20 KB, twice what fits into 16 MiB, watched by statvfs",
    make_step,
    processes=4,
    max_size_bytes=16 * MIB,
    keys=0,
    keys_each=_PUTS_EACH,
    ends_by_itself=True,
    wants_own_mount=True,
    checks=_checks,
)

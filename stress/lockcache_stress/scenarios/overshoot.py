# SPDX-License-Identifier: Apache-2.0
"""32 processes write 100 values of 64 KiB each into 10 MiB, with no daemon: twenty times what fits.

Proves invariant 3 (hard cap) by the file system's own count: on a tmpfs (as root) statvfs is read all the time, and its
count is never above the cap. The values fill their pages, so that blocks and bytes agree.
"""

from __future__ import annotations

from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Check, Outcome, Worker

_PUTS_EACH = 100
_VALUE_BYTES = 64 * 1024


def make_step(worker: Worker) -> Step:
    """Returns the step: 100 writes, each to a key of its own, each read back at once."""
    return worker.put_own(_PUTS_EACH, (_VALUE_BYTES,))


def _checks(outcome: Outcome) -> list[Check]:
    peak, cap = outcome.peaks.statvfs_bytes, outcome.plan.max_size_bytes
    return [] if peak is None else [Check("statvfs peak over cap", f"{peak / cap:.3f}", "<= 1", peak <= cap)]


SCENARIO = Scenario(
    "overshoot",
    "32 processes x 100 x 64 KiB into 10 MiB, watched by statvfs",
    make_step,
    processes=32,
    max_size_bytes=10 * MIB,
    keys=0,
    keys_each=_PUTS_EACH,
    ends_by_itself=True,
    wants_own_mount=True,
    checks=_checks,
)

# SPDX-License-Identifier: Apache-2.0
"""The scenarios by name, in the order in which ``all`` runs them."""

from __future__ import annotations

from typing import Final

from lockcache_stress.plan import Scenario
from lockcache_stress.scenarios import (
    big_values,
    clock_jumps,
    clock_step,
    deleted,
    disk_full,
    distinct_keys,
    evict_rewrite,
    interrupts,
    io_errors,
    kill,
    mixed,
    no_locks,
    nvrtc,
    overshoot,
    pile,
    read_only,
    reader_writer,
    recency,
    rot,
    same_key,
    single_flight,
    small_values,
    stopped_holder,
    storm,
    takeover,
)

#: The step of the scenario that compiles with NVRTC, which has a command of its own.
NVRTC_STEP: Final = nvrtc.make_step

#: The scenarios that need nothing but a file system, in the order in which ``all`` runs them.
BYTE_SCENARIOS: Final[tuple[Scenario, ...]] = (
    same_key.SCENARIO,
    distinct_keys.SCENARIO,
    reader_writer.SCENARIO,
    evict_rewrite.SCENARIO,
    kill.SCENARIO,
    storm.SCENARIO,
    big_values.SCENARIO,
    overshoot.SCENARIO,
    small_values.SCENARIO,
    same_key.RECORD_FILES,
    rot.SCENARIO,
    recency.SCENARIO,
    single_flight.SCENARIO,
    pile.SCENARIO,
    takeover.SCENARIO,
)

#: The scenarios in which the surroundings fail: disks, locks, clocks, mounts. ``all`` runs them after the others.
TROUBLE_SCENARIOS: Final[tuple[Scenario, ...]] = (
    stopped_holder.SCENARIO,
    disk_full.SCENARIO,
    disk_full.QUOTA,
    read_only.SCENARIO,
    deleted.SCENARIO,
    io_errors.SCENARIO,
    no_locks.SCENARIO,
    clock_jumps.SCENARIO,
    clock_step.SCENARIO,
    interrupts.SCENARIO,
    mixed.SCENARIO,
    same_key.MPI,
)

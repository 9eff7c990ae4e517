# SPDX-License-Identifier: Apache-2.0
"""Schedules: every order of the steps of real operations in real processes, and what has to be true after each.

Promises that a schedule is run again by its list of integers, and that no process or file is left.

May use: experiments, model, processes, run, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.schedules.explore import Experiment, Explored, Explorer, Violation
    from lockcache_stress.schedules.judge import disk_bytes, used_shards
    from lockcache_stress.schedules.operations import FAR, FARTHER, KEY, NEAR, NEW, OPERATIONS, Begin
    from lockcache_stress.schedules.operations import lower_cap, name_of, names_of_entries, value_of
    from lockcache_stress.schedules.directory import Workplace
    from lockcache_stress.schedules.planted import PLANTED, Planted
    from lockcache_stress.schedules.plans import PAIRS, TRIPLES, explore_all, explore_one, is_found
    from lockcache_stress.schedules.plans import planted_experiment, prove_all, workplace
    from lockcache_stress.schedules.running import Ran

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

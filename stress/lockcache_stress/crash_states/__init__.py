# SPDX-License-Identifier: Apache-2.0
"""Crash states: every disk that a power cut may leave of one operation, built, opened, read, verified and recounted.

Promises that no file is left.

May use: experiments, processes, run, schedules, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.crash_states.cases import CASES, PLANTED_CUTS, try_all
    from lockcache_stress.crash_states.checks import Cuts, all_ways
    from lockcache_stress.crash_states.disks import PROMISES

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

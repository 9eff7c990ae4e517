# SPDX-License-Identifier: Apache-2.0
"""A model of the protocol: page, names, locks, leases and death, explored whole; and SPIN, which checks it again.

Promises that a model of two or three processes is explored to its last state.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.model.parts import DEATH, OPEN, Program, Slot
    from lockcache_stress.model.protocol import FAULTS, Model
    from lockcache_stress.model.states import MODELS, PLANTED, Searched, search
    from lockcache_stress.model.spin import CHECKED, FAULTY, Checked, Claimed, run_spin, why_no_spin
    from lockcache_stress.model.traces import END, NO_STEPS, STEPS, Broken, Disk, Follower, Step

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

# SPDX-License-Identifier: Apache-2.0
"""The demonstration: the same compilations without a cache and with it, then under a cap that a daemon keeps.

``member`` is one process. Every result is compared with what a compiler gave without a cache. Promises that no process
and no directory is left when a run ends.

May use: errors, gpu, processes, run, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.demo.member import DemoPlan
    from lockcache_stress.experiments.demo.outcome import DemoOutcome, Kept, Start
    from lockcache_stress.experiments.demo.run import run_demo

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

"""The herd: many processes want the same templated kernels at once, and each kernel is compiled once.

``sources`` writes real CUDA C++ with real headers, ``member`` is one process, ``running`` starts them all and compares,
``outcome`` says what must hold. Promises to compare every process's bytes with a reference.

May use: errors, gpu, processes, run, trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.herd.outcome import *
    from lockcache_stress.experiments.herd.plan import *
    from lockcache_stress.experiments.herd.running import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "outcome": "HerdOutcome",
            "plan": "HerdOptions",
            "running": "run_herd",
        },
    )

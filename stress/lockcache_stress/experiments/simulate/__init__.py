"""Simulation: what evicting by cost saves, replayed with real compile costs and the real ranking.

Promises that the ranking is the library's own.

May use: errors, gpu, zipf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.simulate.programs import *
    from lockcache_stress.experiments.simulate.replaying import *
    from lockcache_stress.experiments.simulate.trace import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "programs": "Program load_programs measure_programs save_programs",
            "replaying": "replay upper_bound",
            "trace": "Request load_trace make_trace save_trace",
        },
    )

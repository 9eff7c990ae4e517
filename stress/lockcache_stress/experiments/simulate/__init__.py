# SPDX-License-Identifier: Apache-2.0
"""Simulate: what orders of eviction save, replayed with real compile costs.

Promises that the same programs, trace and seed give the same, and that the orders of the library are asked of the
library. ``programs`` are measured, ``traces`` drawn or recorded, ``orders`` compares.

May use: errors, gpu, zipf.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.simulate.programs import Program, load_programs, measure_programs, save_programs
    from lockcache_stress.experiments.simulate.orders import ORDERS, replay, upper_bound
    from lockcache_stress.experiments.simulate.traces import Request, Trace, ci_trace, load_trace, make_trace
    from lockcache_stress.experiments.simulate.traces import recorded_trace, save_trace, standard_traces

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

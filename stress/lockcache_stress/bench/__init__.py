# SPDX-License-Identifier: Apache-2.0
"""The benchmark: measures this cache next to others, in one run, with bars that must hold. A module for each operation.

Promises ratios of the same work in the same run. Each line names what is compared.

May use: errors, gpu, processes, run, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.bench.base import Line
    from lockcache_stress.bench.daemon import why_no_daemon
    from lockcache_stress.bench.measurements import CURVES, MEASUREMENTS, ON_REQUEST, BenchOutcome, run_bench

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

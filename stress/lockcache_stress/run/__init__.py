# SPDX-License-Identifier: Apache-2.0
"""Running a scenario: rounds, workers, daemons, samples and counters, from options to an outcome.

Promises that every process is ended and every temporary file removed, whatever ends the run.

May use: errors, gpu, judge, plan, processes, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.run.counters import Counters, Latencies
    from lockcache_stress.run.daemons import DaemonProcess, find_daemon
    from lockcache_stress.run.outcome import Check, Grid, GridRow, Outcome, Reportable, Tabled, equal, some, zero
    from lockcache_stress.run.rounds import Show
    from lockcache_stress.run.runner import read_findings
    from lockcache_stress.run.sampler import Peaks, bytes_on_disk, drift_bytes, is_stopped, stopped, tree_bytes
    from lockcache_stress.run.sampler import used_bytes
    from lockcache_stress.run.session import Options, run_bytes, run_nvrtc
    from lockcache_stress.run.worker import Worker, run_worker
    from lockcache_stress.run.workers import SpawnedWorkers, find_mpiexec, started_job, why_no_mpi

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

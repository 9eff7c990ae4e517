"""Running a scenario: rounds, workers, daemons, samples and counters, from options to an outcome.

Promises that every process is ended and every temporary file removed, whatever ends the run.

May use: errors, gpu, judge, plan, processes, trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.run.counters import *
    from lockcache_stress.run.daemons import *
    from lockcache_stress.run.group import *
    from lockcache_stress.run.latency import *
    from lockcache_stress.run.mpi_workers import *
    from lockcache_stress.run.outcome import *
    from lockcache_stress.run.rounds import *
    from lockcache_stress.run.sampler import *
    from lockcache_stress.run.session import *
    from lockcache_stress.run.tables import *
    from lockcache_stress.run.worker import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "counters": "Counters",
            "daemons": "DaemonProcess find_daemon",
            "group": "Group take_turn",
            "latency": "Latencies",
            "mpi_workers": "find_mpiexec started_job why_no_mpi",
            "outcome": "Check Outcome Reportable equal some zero",
            "rounds": "Show",
            "sampler": "Peaks bytes_on_disk drift_bytes is_stopped tree_bytes used_bytes",
            "session": "Options run_bytes run_nvrtc",
            "tables": "Grid GridRow Tabled",
            "worker": "Worker run_worker",
        },
    )

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
    from lockcache_stress.run.outcome import *
    from lockcache_stress.run.rounds import *
    from lockcache_stress.run.runner import *
    from lockcache_stress.run.sampler import *
    from lockcache_stress.run.session import *
    from lockcache_stress.run.worker import *
    from lockcache_stress.run.workers import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "counters": "Counters Latencies",
            "session": "Options run_bytes run_nvrtc",
            "outcome": "Check equal Grid GridRow Outcome Reportable some Tabled zero",
            "daemons": "DaemonProcess find_daemon",
            "rounds": "Show",
            "runner": "read_findings",
            "sampler": "Peaks bytes_on_disk drift_bytes is_stopped stopped tree_bytes used_bytes",
            "worker": "Worker run_worker",
            "workers": "SpawnedWorkers find_mpiexec started_job why_no_mpi",
        },
    )

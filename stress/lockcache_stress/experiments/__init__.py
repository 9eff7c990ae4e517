"""Experiments: proofs that are not a scenario with workers.

Power cuts, file systems, planted bugs, simulated evictions. The fleet: a model of many nodes that start, in discrete
``events``. The herd: many processes want the same templated kernels at once, and each is compiled once;
``herd_member`` is one process. MPI jobs on several hosts; ``mpi_rank`` is one rank. The kill table: what survives a
SIGKILL at each step; ``kill_points`` dies at the n-th call, ``kill_actions`` is what dies. The GPU kit, a fleet on a
real server (``remote``) and the keys of compilations (``keys``) are rooms of their own. Promises that no mount, process
or file is left when one ends.

May use: errors, gpu, judge, plan, processes, run, scenarios, trouble, zipf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.fleet import *
    from lockcache_stress.experiments.herd import *
    from lockcache_stress.experiments.herd_member import *
    from lockcache_stress.experiments.kill_actions import *
    from lockcache_stress.experiments.kill_table import *
    from lockcache_stress.experiments.mpi_hosts import *
    from lockcache_stress.experiments.power_cut import *
    from lockcache_stress.experiments.proofs import *
    from lockcache_stress.experiments.simulate import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "proofs": "FILE_SYSTEMS possible_bugs prove Proven Tried try_on",
            "fleet": "COUNTED Calls Cost Fleet WAYS compare is_near load_counts run_start",
            "herd": "HerdOutcome run_herd",
            "herd_member": "HerdOptions",
            "kill_actions": "ACTIONS OTHERS",
            "kill_table": "Row as_markdown make_rows",
            "mpi_hosts": "HostsOptions run_on_hosts",
            "power_cut": "Cut KINDS cut_once why_no_power_cut",
            "simulate": "Program Request load_programs load_trace make_trace measure_programs replay save_programs "
            "save_trace upper_bound",
        },
    )

"""Experiments: proofs that are not a scenario with workers. Power cuts, file systems, planted bugs, pairs of keys, MPI
jobs on several hosts, simulated evictions.

Those that take several modules are rooms of their own: herd, kill_table, gpu_kit. Promises that no mount, process or
file is left when one ends.

May use: errors, gpu, judge, plan, processes, run, scenarios, trouble, zipf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.bugs import *
    from lockcache_stress.experiments.file_systems import *
    from lockcache_stress.experiments.key_pairs import *
    from lockcache_stress.experiments.mpi_hosts import *
    from lockcache_stress.experiments.power_cut import *
    from lockcache_stress.experiments.simulate import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "bugs": "Proven possible_bugs prove",
            "file_systems": "FILE_SYSTEMS Tried try_on",
            "key_pairs": "Changed Outcome try_pairs",
            "mpi_hosts": "HostsOptions run_on_hosts",
            "power_cut": "Cut KINDS cut_once why_no_power_cut",
            "simulate": "Program Request load_programs load_trace make_trace measure_programs replay save_programs "
            "save_trace upper_bound",
        },
    )

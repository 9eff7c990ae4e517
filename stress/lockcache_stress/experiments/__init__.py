# SPDX-License-Identifier: Apache-2.0
"""Experiments: proofs that are not a scenario with workers.

Power cuts, file systems, planted bugs. The fleet: a model of many nodes that start, in discrete
``events``. The herd: many processes want the same templated kernels at once, and each is compiled once;
``herd_member`` is one process. MPI jobs on several hosts; ``mpi_rank`` is one rank. The kill table: what survives a
SIGKILL at each step; ``kill_points`` dies at the n-th call, ``kill_actions`` is what dies. The GPU kit, a fleet on a
real server (``remote``), the keys of compilations (``keys``) and simulated evictions (``simulate``) are rooms of their
own. Promises that no mount, process
or file is left when one ends.

May use: errors, gpu, judge, plan, processes, run, scenarios, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.fleet import COUNTED, WAYS, Calls, Cost, Fleet, compare, is_near, load_counts
    from lockcache_stress.experiments.fleet import run_start
    from lockcache_stress.experiments.herd import HerdOutcome, run_herd
    from lockcache_stress.experiments.herd_member import HerdOptions
    from lockcache_stress.experiments.kill_actions import ACTIONS, OTHERS
    from lockcache_stress.experiments.kill_points import die, files_of, replace_calls
    from lockcache_stress.experiments.kill_table import Row, as_markdown, make_rows
    from lockcache_stress.experiments.mpi_hosts import HostsOptions, run_on_hosts
    from lockcache_stress.experiments.power_cut import KINDS, Cut, cut_once, why_no_power_cut
    from lockcache_stress.experiments.proofs import FILE_SYSTEMS, Proven, Tried, possible_bugs, prove, try_on

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

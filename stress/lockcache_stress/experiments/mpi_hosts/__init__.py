"""MPI ranks on several hosts: one job over hosts made of namespaces compiles each kernel once, and outlives a rank.

``networks`` makes the hosts, ``rank`` is one rank, ``running`` starts the jobs and kills. Promises that no host, rank
or file is left.

May use: errors, gpu, processes, run, trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.mpi_hosts.running import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__, {"running": "HostsFound HostsOptions run_on_hosts"})

"""A fleet that shares a real server: hosts made of namespaces, processes on each, and what the server costs them.

``trials`` runs them, ``member`` is one host's processes, ``million`` fills a server that evicts, ``distant`` starts
nodes far from one, ``peers`` measures ccache next to lockcache. Promises that no host, server or process is left when
one ends.

May use: errors, gpu, processes, run, servers, trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.remote.trials import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__, {"trials": "ALONE FleetOptions SCENARIOS run_remote why_no_fleet"})

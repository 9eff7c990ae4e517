# SPDX-License-Identifier: Apache-2.0
"""A fleet that shares a real server: hosts made of namespaces, processes on each, and the time that the server takes.

``trials`` runs the trials, ``member`` has the processes of one host, ``million`` fills a server that evicts,
``distant`` starts nodes far from a server, ``checked`` holds every read against what is promised
(``promises``, ``checked_node``), ``peers`` measures ccache next to lockcache. Promises that no host, server
or process is left when a trial ends.

May use: errors, gpu, processes, run, servers, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.remote.trials import ALONE, SCENARIOS, FleetOptions, run_remote, why_no_fleet

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

"""The commands of ``lockcache-stress``, one module each, with click. Needs the ``cli`` extra.

Promises the exit codes: 0 all is as it must be, 1 it is not, 2 bad usage or what is asked for cannot be had here.

May use: bench, errors, experiments, gpu, hosts, plan, report, run, scenarios, servers, trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.commands.scenarios import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "scenarios": "run_command_line",
        },
    )

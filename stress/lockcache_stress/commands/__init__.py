# SPDX-License-Identifier: Apache-2.0
"""The commands of ``lockcache-stress``, one module each, with click. Needs the ``cli`` extra.

Promises the exit codes: 0 if every check passed, 1 if one failed, 2 for bad usage or something that cannot be had here.

May use: bench, crash_states, errors, experiments, gpu, hosts, model, plan, report, run, scenarios, schedules,
servers, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.commands.scenarios import run_command_line

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

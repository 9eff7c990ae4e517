"""The kill table: what survives a SIGKILL at each step. Every step is died at, and what is left is inspected.

Layers, lower never import higher: ``death`` (dying at the n-th call), ``actions`` (what dies), ``survey`` (what is
left), ``table`` (all of it, and printing it). Promises that no step is left out.

May use: run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.kill_table.actions import *
    from lockcache_stress.experiments.kill_table.table import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "actions": "ACTIONS OTHERS",
            "table": "Row as_markdown make_rows",
        },
    )

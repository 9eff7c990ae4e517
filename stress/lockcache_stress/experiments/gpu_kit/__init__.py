# SPDX-License-Identifier: Apache-2.0
"""The GPU kit: rows that check the promises on a real GPU in a few minutes; without one, all but the launches.

``rows`` lists and runs the rows, of which a module has one or two; ``member`` has the processes of a row, and
``frameworks`` the rows of frameworks. Promises that no process, directory or daemon is left
when a row ends, and that the line of a row says what the row could not do.

May use: gpu, processes, run, scenarios, trouble.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.gpu_kit.plan import Found, KitOptions
    from lockcache_stress.experiments.gpu_kit.rows import ROWS, run_rows

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

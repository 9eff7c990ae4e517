"""The GPU kit: rows that show on a real GPU, in a few minutes, what is promised; without one all but the launches.

``rows`` lists and runs them, one module a row or two; ``member`` has the processes of a row, ``framework_user`` those
that use a framework's own cache. Promises that no process, directory or daemon is left when a row ends, and that what a
row could not do is said in its line.

May use: gpu, processes, run, scenarios, trouble, zipf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.experiments.gpu_kit.plan import *
    from lockcache_stress.experiments.gpu_kit.rows import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "rows": "ROWS run_rows",
            "plan": "Found KitOptions",
        },
    )

# SPDX-License-Identifier: Apache-2.0
"""The process: a dry run, one pass, or a loop of ticks over all directories until a signal ends it.

Promises that an error in one directory does not affect the others, that a reload changes only what was changed, and
that the daemon ends within a second.

May use: budgets, keeper, observe, scrub, settings, signals, stores.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.run.program import Request, carry_out
else:
    __getattr__, __dir__ = door(__name__)

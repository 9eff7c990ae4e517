# SPDX-License-Identifier: Apache-2.0
"""Budgets over several directories: what each has to give for the total and for what stays free; and the dry run.

Promises that ``--dry-run`` changes nothing.

May use: observe, throttle, settings, signals, stores.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.budgets.dry_run import rehearse_all
    from lockcache_daemon.budgets.shared import SharedBudgets
else:
    __getattr__, __dir__ = door(__name__)

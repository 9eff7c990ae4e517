# SPDX-License-Identifier: Apache-2.0
"""One directory, kept: its policy, budgets and status, tick after tick.

Promises one daemon for a directory, invariant 3 (hard cap) for programs that know of no cap, and that a directory which
became unsafe or was unmounted is not touched.

May use: errors, observe, throttle, settings, signals, stores.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.keeper.keeper import Keeper
    from lockcache_daemon.keeper.root_user import refuse_as_root
    from lockcache_daemon.keeper.single_instance import LOOK_SECONDS
else:
    __getattr__, __dir__ = door(__name__)

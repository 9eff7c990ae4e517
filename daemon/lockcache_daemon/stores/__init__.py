# SPDX-License-Identifier: Apache-2.0
"""Stores: open directories of each layout. lockcache's own sizes are accounted, those of others measured by walking.

Promises the keeper one protocol for all layouts (:class:`Store`): measure, sweep, recount.

May use: observe, throttle, settings, signals.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.stores.foreign import ForeignStore
    from lockcache_daemon.stores.layouts import choose_layout, store_of, view
    from lockcache_daemon.stores.protocol import KeptDirectory, MakePart, OpenStore, Part
    from lockcache_daemon.stores.protocol import Step, Store
    from lockcache_daemon.stores.sharded import ShardStore
    from lockcache_daemon.stores.views import Seen, View, view_lockcache
else:
    __getattr__, __dir__ = door(__name__)

"""Stores: open directories of each layout. lockcache's own sizes are accounted, those of others measured by walking.

Promises the keeper one protocol for all layouts (:class:`Store`): measure, sweep, recount.

May use: observe, throttle, settings, signals.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_daemon.stores.foreign import *
    from lockcache_daemon.stores.layouts import *
    from lockcache_daemon.stores.protocol import *
    from lockcache_daemon.stores.sharded import *
    from lockcache_daemon.stores.views import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "layouts": "choose_layout store_of view",
            "protocol": "HasStatusFields KeptDirectory MakePart OpenStore Opening Part Step Store",
            "sharded": "ShardStore open_shards",
            "views": "Seen View view_lockcache",
            "foreign": "ForeignStore",
        },
    )

"""A server's entries: its protocols, what of its answers is believed, and for how long a process waits for it.

Promises invariant 1 (a hit is whole) in :class:`RemoteStore`, whatever the server answers, and invariant 7 (never take
the job down): no call of it raises for what the server does, and a process waits for a server that is dead, silent or
slow for a second in its whole life.

May use: accounting, disk, entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.remote.bulk import *
    from lockcache.filestream.remote.calls import *
    from lockcache.filestream.remote.clearing import *
    from lockcache.filestream.remote.counters import *
    from lockcache.filestream.remote.node_state import *
    from lockcache.filestream.remote.sealing import *
    from lockcache.filestream.remote.store import *
    from lockcache.filestream.remote.transport import *
    from lockcache.filestream.remote.turns import *
    from lockcache.filestream.remote.wait_limits import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "bulk": "read_bulk",
            "calls": "call_within",
            "clearing": "clear_server",
            "wait_limits": "Breaker",
            "node_state": "SharedBreaker make_server_folder",
            "sealing": "seal unseal",
            "store": "RemoteCounts RemoteStore",
            "counters": "ServerCounters ServerSeen read_servers report_of reset_servers",
            "transport": (
                "LeaseAnswer RemoteError RemoteUrl Transport configured_url open_transport parse_url require_client"
            ),
            "turns": "RemoteTurn take_turn",
        },
    )

"""A server's entries: its protocols, what of its answers is believed, and for how long a process waits for it.

Promises invariant 1 (a hit is whole) in :class:`RemoteStore`, whatever the server answers, and invariant 7 (never take
the job down): no call of it raises for what the server does, and a process waits for a server that is dead, silent or
slow for a second in its whole life.

May use: accounting, disk, entry.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.remote.bulk import clear_server, read_bulk
    from lockcache.filestream.remote.calls import call_within
    from lockcache.filestream.remote.counters import ServerCounters, ServerSeen, read_servers, report_of
    from lockcache.filestream.remote.counters import reset_servers_locked
    from lockcache.filestream.remote.node_state import SharedBreaker, make_server_folder
    from lockcache.filestream.remote.sealing import seal, unseal
    from lockcache.filestream.remote.store import RemoteCounts, RemoteStore
    from lockcache.filestream.remote.transport import LeaseAnswer, RemoteError, RemoteUrl, Transport, configured_url
    from lockcache.filestream.remote.transport import open_transport, parse_url, require_client
    from lockcache.filestream.remote.turns import RemoteTurn, take_turn
    from lockcache.filestream.remote.wait_limits import Breaker

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

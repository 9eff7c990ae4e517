# SPDX-License-Identifier: Apache-2.0
"""Servers of entries: a cache on a server that several hosts share, alone, behind a directory or behind another cache.

Promises invariant 1 (a hit is whole), whatever the server answers, and invariant 7 (never take the job down): no call
raises for what the server does, and a process waits for a server that is dead, silent or slow for a second in its whole
life. Caches that are only read stand behind another one as servers do, so that is decided here too (:mod:`.backed`).

Rooms: servers (their protocols), manifest (the keys that a job looks up). May use: the store, which knows nothing of
this room.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.remote.backed import with_backing
    from lockcache.remote.backing import BackedWriter, Backing, backing_of
    from lockcache.remote.bulk import clear_server, read_bulk
    from lockcache.remote.cache import RemoteProgramCache
    from lockcache.remote.counters import RemoteCounts, ServerCounters, ServerSeen, read_servers, reset_servers_locked
    from lockcache.remote.prefetching import Fetched, fetch_missing
    from lockcache.remote.sealing import seal, unseal
    from lockcache.remote.servers import Answer, LeaseAnswer, RemoteError, RemoteUrl, Transport, call_within
    from lockcache.remote.servers import configured_url, open_transport, parse_url, refuse_settings, require_client
    from lockcache.remote.store import RemoteStore
    from lockcache.remote.turns import RemoteTurn, take_turn
    from lockcache.remote.wait_limits import Breaker

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

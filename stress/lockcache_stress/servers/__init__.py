# SPDX-License-Identifier: Apache-2.0
"""Real servers of entries: Valkey, nginx with WebDAV, SeaweedFS; started here or on a host made of namespaces.

Promises that each server is a process of its own on a free port, which listens when it is made, ends with ``kill``, and
can be started again on the same port. A proxy in front of a server causes faults on request.

May use: errors.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.servers.kinds import KINDS, Nginx, SeaweedFS, Valkey, find_valkey
    from lockcache_stress.servers.proxy import FAULTS, FaultProxy
    from lockcache_stress.servers.server_process import HERE, Place, Server, await_port, free_pair, free_port

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

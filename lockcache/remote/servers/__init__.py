"""Servers: one protocol for Valkey, object stores and HTTP, and calls that end within their time.

Promises :class:`Transport`, whose every failure is a :class:`RemoteError`, and that a call takes no longer than it is
given, whatever its client does.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.remote.servers.calls import call_within, forget_calls, read_in_parallel
    from lockcache.remote.servers.transport import LARGEST_VALUE_BYTES, LeaseAnswer, RemoteError, RemoteUrl, Transport
    from lockcache.remote.servers.transport import configured_url, open_transport, parse_url, require_client

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

# SPDX-License-Identifier: Apache-2.0
"""Servers: one protocol for Valkey, object stores and HTTP, and calls that end within their time.

Promises :class:`Transport`, whose every failure is a :class:`RemoteError` that states what the answer meant, and that a
call takes no longer than it is given, whatever its client does.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.remote.servers.answers import Answer, RemoteError
    from lockcache.remote.servers.calls import call_within, read_in_parallel
    from lockcache.remote.servers.transport import LARGEST_VALUE_BYTES, LeaseAnswer, Transport, open_transport
    from lockcache.remote.servers.transport import more_seconds, refuse_settings, require_client
    from lockcache.remote.servers.urls import RemoteUrl, UrlSettingError, configured_url, parse_url

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)

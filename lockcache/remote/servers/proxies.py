# SPDX-License-Identifier: Apache-2.0
"""Proxies: which one the environment names for a server, as curl reads ``http_proxy`` and ``no_proxy``.

Source of the rules: the manual of curl, "ENVIRONMENT". A lower-case name comes first, and ``HTTP_PROXY`` is
not read: a web server sets it from a header of a request. obstore has the same rules of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from lockcache.remote.servers.answers import Answer, RemoteError

__all__ = ["Proxy", "proxy_for"]

#: The variables by scheme, the first that is set counts.
_VARIABLES: Final = {
    "http": ("http_proxy", "all_proxy", "ALL_PROXY"),
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
}


class Proxy(NamedTuple):
    """A proxy, without and with what it wants to know of its user."""

    url: str
    #: ``user:password``; empty for none.
    user: str


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """Returns the proxy for a server; ``None`` for none. Raises :class:`RemoteError` for one that cannot be used."""
    variable = next((name for name in _VARIABLES[scheme] if name in os.environ), "")
    text = os.environ.get(variable, "")
    if not text or _is_excepted(host):
        return None
    with contextlib.suppress(ValueError):
        parts = urlsplit(text if "://" in text else f"http://{text}")
        place = parts.netloc.rpartition("@")[2]
        user = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return Proxy(f"{parts.scheme}://{place}", user)
    # Without the value, which may have a password in it.
    raise RemoteError(f"${variable} is not the URL of a proxy for HTTP, such as http://host:3128", Answer.MISUSED)


def _is_excepted(host: str) -> bool:
    """Returns whether a host is reached without a proxy: ``no_proxy`` names it, its domain, its network, or all."""
    names = os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")).replace(",", " ").split()
    host = host.strip("[]").rstrip(".").lower()
    return "*" in names or any(_covers(name.strip("[]").strip(".").lower(), host) for name in names)


def _covers(name: str, host: str) -> bool:
    if not name:
        return False
    if host == name or host.endswith(f".{name}"):
        return True
    with contextlib.suppress(ValueError):
        if "/" in name:
            import ipaddress  # few variables name a network

            return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    return False

# SPDX-License-Identifier: Apache-2.0
"""A directory that the hosts open in turn, and both at once: is it ever counted again?

A page that is counted again is a new file, so its inode on the server shows it, whatever a host believes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from lockcache.lowlevel import Layout
from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Client, Site

__all__ = ["opened"]

_TIMES: Final = 6
_NAME: Final = "opened"


def opened(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield the number of different pages after each opening, the entries at the end, and the shards then set right."""
    site.make(_NAME)
    pages = []
    for number in range(_TIMES):
        with Rank(site.clients[number % 2]) as rank:
            _use(rank, rank.client, f"in turn/{number}")
            rank.call("close")
        pages.append(_page(site))
    yield "in turn", len(set(pages))
    with Rank(site.clients[0]) as one, Rank(site.clients[1]) as other:
        for number in range(_TIMES):
            rank = (one, other)[number % 2]
            _use(rank, rank.client, f"at once/{number}")
            pages.append(_page(site))
        yield "at once", len(set(pages))
        yield "entries", one.call("entries")
        yield "wanted_entries", 2 * _TIMES
        yield "repaired_shards", one.call("recount")


def _use(rank: Rank, client: Client, key: str) -> None:
    rank.call("open", client.at(_NAME))
    rank.call("put", key, b"a value")


def _page(site: Site) -> int:
    return os.stat(Layout(site.at(_NAME)).state).st_ino

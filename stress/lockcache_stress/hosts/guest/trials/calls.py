"""Requests to the server, operation by operation, counted on the second client."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.rpc import Requests
from lockcache_stress.hosts.guest.site import Client, Site
from lockcache_stress.hosts.guest.trials.leases import wait_for_lease

__all__ = ["calls"]

# What is there before, over 256 shards: most puts find their shard's folder, some make it.
_STORED: Final = 150
_PUTS: Final = 60
_COMPUTED: Final = 40
_VALUE: Final = os.urandom(4000)
_CAP_BYTES: Final = 1 << 30
# A waiter may ask often in its first second.
_SETTLE_SECONDS: Final = 1.5
_WAIT_SECONDS: Final = 8.0


def calls(site: Site) -> Iterator[tuple[str, Any]]:
    """Give requests for each operation, and by kind."""
    first, second = site.clients
    counted = _Counted(second)
    _without_cap(site, second, counted)
    yield "without a cap", counted.each.copy()
    name = _filled(site, "calls-cap")
    with Rank(second) as rank:
        rank.call("open", second.at(name), max_size_bytes=_CAP_BYTES)
        counted.skip()
        rank.call("put_each", _keys("new", _PUTS), _VALUE)
        counted.take("put with a cap", _PUTS)
    yield "with a cap", counted.each.copy()
    _wait_for_another(site, first, second, counted)
    yield "each", counted.each
    yield "kinds", counted.kinds


def _filled(site: Site, name: str) -> str:
    """Make a directory that the first host has used: the server gives delegations of what only one ever opened."""
    site.make(name)
    first = site.clients[0]
    with Rank(first) as rank:
        rank.call("open", first.at(name))
        rank.call("put_each", _keys("stored", _STORED), _VALUE)
        rank.call("close")
    return name


def _without_cap(site: Site, second: Client, counted: _Counted) -> None:
    name = _filled(site, "calls")
    with Rank(second) as rank:
        counted.skip()
        rank.call("open", second.at(name))
        counted.take("open", 1)
        hits = rank.call("get_each", _keys("stored", _STORED))
        counted.take("cold hit", hits)
        rank.call("get_each", _keys("stored", _STORED))
        counted.take("hit again", _STORED)
        rank.call("put_each", _keys("new", _PUTS), _VALUE)
        counted.take("put", _PUTS)
        rank.call("compute_each", _keys("computed", _COMPUTED), _VALUE)
        counted.take("get_or_compute that computes", _COMPUTED)
        locks = rank.call("open_locks")
        rank.call("close")
        counted.take("close", 1, but=locks)


def _wait_for_another(site: Site, first: Client, second: Client, counted: _Counted) -> None:
    name = site.make("calls-wait")
    with Rank(first) as holder, Rank(second) as waiter:
        holder.call("open", first.at(name))
        waiter.call("open", second.at(name))
        holder.begin("compute", "waited for", _VALUE, at_gate=True)
        wait_for_lease(site.at(name))
        waiter.begin("compute", "waited for", _VALUE)
        time.sleep(_SETTLE_SECONDS)
        counted.skip()
        began = time.monotonic()
        time.sleep(_WAIT_SECONDS)  # what is measured: waiting
        counted.take("a waiter's second", time.monotonic() - began)
        holder.gate.set()
        holder.result()
        waiter.result()


def _keys(kind: str, count: int) -> list[str]:
    return [f"{kind}/{number}" for number in range(count)]


class _Counted:
    """Requests of one client, by operation of the cache."""

    def __init__(self, client: Client) -> None:
        self._requests = Requests(client.mount)
        #: How many each took, and of what kinds they were.
        self.each: dict[str, float] = {}
        self.kinds: dict[str, Mapping[str, float]] = {}

    def skip(self) -> None:
        """What came until now belongs to nothing that is counted."""
        self._requests.since()

    def take(self, name: str, times: float, but: int = 0) -> None:
        """What came since the last look is of so many calls; ``but`` of them are not counted."""
        found: Counter[str] = self._requests.since()
        each = max(times, 1e-9)
        self.each[name] = round((sum(found.values()) - but) / each, 2)
        self.kinds[name] = {kind: round(count / each, 2) for kind, count in found.most_common()}

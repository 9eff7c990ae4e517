# SPDX-License-Identifier: Apache-2.0
"""Requests to the server, operation by operation, counted on the second client."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from lockcache.lowlevel import entry_name
from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.rpc import Requests
from lockcache_stress.hosts.guest.site import Client, Site

__all__ = ["calls"]

# Like 200 keys in all 256 shards, in a third of the time: most puts find their shard's folder, and some make it; most
# open their shard's lock, and some have it open.
_SHARDS: Final = 77
_STORED: Final = 60
_PUTS: Final = 60
_COMPUTED: Final = 40
_REPORT: Final = "stats, which reports"
# The puts that are counted together.
_AT_ONCE: Final = 6
_VALUE: Final = os.urandom(4000)
_CAP_BYTES: Final = 1 << 30
# The first second of a wait, in which a waiter may ask often, is not counted.
_SETTLE_SECONDS: Final = 1.5
_WAIT_SECONDS: Final = 8.0
_WAITED: Final = "calls-wait"


def calls(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield the requests of each operation, and their kinds."""
    first, second = site.clients
    counted = _Counted(second)
    _wait_for_another(site, first, second, counted)  # before all others, while the client has no delegations to return
    yield "waiting", counted.each.copy()
    _without_cap(site, second, counted)
    yield "without a cap", counted.each.copy()
    with Rank(second) as rank:
        rank.call("trust_names")
        rank.call("open", second.at("calls"), max_size_bytes=_CAP_BYTES)
        _put(rank, counted, "put with a cap", _keys("capped", _PUTS))
    yield "with a cap", counted.each.copy()
    yield "each", counted.each
    yield "kinds", counted.kinds


def _filled(site: Site, name: str) -> str:
    """Make a directory that the first host has used: the server delegates only files that one host ever opened."""
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
        # Held open, so that the requests of the kernel for the mount itself, once a minute, are not counted.
        rank.call("hold", second.mount)
        rank.call("hold", second.at(_WAITED))
        rank.call("trust_names")
        counted.skip()
        rank.call("open", second.at(name))
        counted.take("open", 1)
        hits = rank.call("get_each", _keys("stored", _STORED))
        counted.take("cold hit", hits)
        rank.call("get_each", _keys("stored", _STORED))
        counted.take("hit again", _STORED)
        _second_process(second, name, counted)
        _put(rank, counted, "put", _keys("new", _PUTS))
        known = {_shard(key) for key in _keys("new", _PUTS)}
        _put(rank, counted, "put, its lock open", _keys("newer", _PUTS, known))
        rank.call("accounted_bytes")
        counted.skip()
        rank.call("compute_each", _keys("computed", _COMPUTED), _VALUE)
        counted.take("get_or_compute that computes", _COMPUTED, gives_back=True)  # the delegation of its lease file
        locks = rank.call("open_locks")
        counted.skip()  # inspecting each open file causes requests
        rank.call("close")
        counted.take("close", 1, locks=locks, gives_back=True)


def _put(rank: Rank, counted: _Counted, what: str, keys: list[str]) -> None:
    """Count puts, a few at a time: every ten seconds a put reports the counts of its process, as ``stats`` does.

    Here one put of ten would report, and without emulation one of thousands, so that a report is counted separately.
    """
    counted.skip()
    for start in range(0, len(keys), _AT_ONCE):
        rank.call("accounted_bytes")
        if start:
            counted.add(_REPORT)
        else:
            counted.skip()
        rank.call("put_each", keys[start : start + _AT_ONCE], _VALUE)
        counted.add(what)
    counted.end(_REPORT, -(-len(keys) // _AT_ONCE) - 1)
    counted.end(what, len(keys))


def _second_process(client: Client, name: str, counted: _Counted) -> None:
    """Count the requests of a host's second process: the host's kernel knows much from the first one."""
    with Rank(client) as rank:
        counted.skip()
        rank.call("open", client.at(name))
        counted.take("second process opens", 1)
        rank.call("get_each", _keys("stored", _STORED))
        counted.take("second process hits", _STORED)
        rank.call("get_each", _keys("missing", _STORED))
        counted.take("miss", _STORED)
        rank.call("close")
        counted.take("second process closes", 1)


def _wait_for_another(site: Site, first: Client, second: Client, counted: _Counted) -> None:
    name = site.make(_WAITED)
    with Rank(first) as holder, Rank(second) as waiter:
        holder.call("open", first.at(name))
        waiter.call("open", second.at(name))
        holder.begin("compute", "waited for", _VALUE, at_gate=True)
        site.wait_for_lease(name)
        waiter.begin("compute", "waited for", _VALUE)
        time.sleep(_SETTLE_SECONDS)
        counted.skip()
        began = time.monotonic()
        time.sleep(_WAIT_SECONDS)  # the requests of this wait are measured
        counted.take("a waiter's second", time.monotonic() - began)
        holder.gate.set()
        holder.result()
        waiter.result()


def _keys(kind: str, count: int, shards: Container[int] = range(_SHARDS)) -> list[str]:
    """Returns so many keys of some shards, by default the first ones."""
    names = (f"{kind}/{number}" for number in itertools.count())
    return list(itertools.islice((name for name in names if _shard(name) in shards), count))


def _shard(key: str) -> int:
    return int(entry_name(key.encode())[:2], 16)


class _Counted:
    """Requests of one client, by operation of the cache."""

    def __init__(self, client: Client) -> None:
        self._requests = Requests(client.mount)
        #: The requests of each operation; the next field has their kinds.
        self.each: dict[str, float] = {}
        self.kinds: dict[str, Mapping[str, float]] = {}
        self._added: dict[str, Counter[str]] = {}

    def skip(self) -> None:
        """Leave out the requests until now."""
        self._requests.since()

    def add(self, name: str) -> None:
        """Add the requests since the last call to this operation, until :meth:`end`."""
        self._added.setdefault(name, Counter()).update(self._requests.since())

    def end(self, name: str, times: float) -> None:
        """Divide the requests that were added by so many calls."""
        self._note(name, self._added.pop(name), times, 0, gives_back=False)

    def take(self, name: str, times: float, locks: int = 0, *, gives_back: bool = False) -> None:
        """Count the requests since the last call for so many calls, without those that close lock files.

        The server gives a client delegations of files that no other client has open. The client returns a delegation
        when the file is removed or a lock file is closed (``gives_back``), else some seconds after the last use, which
        is not counted: it may come during any other operation.
        """
        self._note(name, self._requests.since(), times, locks, gives_back=gives_back)

    def _note(self, name: str, found: Counter[str], times: float, locks: int, *, gives_back: bool) -> None:
        each = max(times, 1e-9)
        apart = min(found["CLOSE"], locks)
        apart += min(found["DELEGRETURN"], locks) if gives_back else found["DELEGRETURN"]
        self.each[name] = round((sum(found.values()) - apart) / each, 2)
        self.kinds[name] = {kind: round(count / each, 2) for kind, count in found.most_common()}

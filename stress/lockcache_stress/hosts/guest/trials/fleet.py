# SPDX-License-Identifier: Apache-2.0
"""Starts of small fleets, with every request counted: the model of larger fleets is checked against them.

The nodes of a start never saw the directory: the caches of their kernels are dropped first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.rpc import Requests
from lockcache_stress.hosts.guest.site import Client, Site

__all__ = ["fleet"]

_EACH: Final = 8
_KERNELS: Final = 8
_MANY_RANKS: Final = 64
_MANY_KERNELS: Final = 300
_VALUE: Final = os.urandom(20_000)
_COMPUTE_SECONDS: Final = 0.3
# The last of many ranks has its turn after all the others. A part of a trial may take a quarter of an hour.
_MOST_SECONDS: Final = 890.0


def fleet(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield the requests, computations and seconds of each start, and its numbers of ranks and kernels."""
    site.make("fleet")
    yield "shared, first start", _start(site.clients, _EACH, _KERNELS, site, None)
    yield "shared, next start", _start(site.clients, _EACH, _KERNELS, site, None)
    site.make("fleet-both")
    yield "both, first start", _start(site.clients, _EACH, _KERNELS, site, "/run/local-a")
    yield "both, next start", _start(site.clients, _EACH, _KERNELS, site, "/run/local-b")
    first, second = site.clients
    with Rank(first) as rank:
        rank.call("open", first.at("fleet"))
        rank.call("compute_each", _keys(_MANY_KERNELS), _VALUE)
        rank.call("close")
    yield "filled", _MANY_KERNELS
    yield "shared, many ranks", _start([second], _MANY_RANKS, _MANY_KERNELS, site, None)


def _start(clients: Sequence[Client], ranks: int, kernels: int, site: Site, local: str | None) -> dict[str, Any]:
    """Have so many ranks on each client ask for the same kernels, in the same order."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    counts = [Requests(client.mount) for client in clients]
    found: dict[str, Any] = {"nodes": len(clients), "ranks_per_node": ranks, "kernels": kernels, "requests": {}}

    def take(step: str) -> None:
        found["requests"][step] = sum(sum(count.since().values()) for count in counts)

    with ExitStack() as stack:
        all_ranks = [stack.enter_context(Rank(client)) for client in clients for _ in range(ranks)]
        for rank in all_ranks:
            if local is None:
                rank.begin("open", rank.client.at("fleet"))
            else:
                rank.begin("open_both", f"{local}-{rank.client.number}", rank.client.at("fleet-both"))
        for rank in all_ranks:
            rank.result()
        take("open")
        began = time.monotonic()
        for rank in all_ranks:
            rank.begin("compute_each", _keys(kernels), _VALUE, _COMPUTE_SECONDS)
        results = [rank.result(_MOST_SECONDS) for rank in all_ranks]
        found["seconds"] = round(time.monotonic() - began, 2)
        take("kernels")
        for rank in all_ranks:
            rank.begin("close")
        for rank in all_ranks:
            rank.result()
        take("close")
        found["dropped"] = sum(rank.call("dropped_writes") for rank in all_ranks)  # after counting: it causes requests
    found["computes"] = sum(computes for computes, _ in results)
    found["wrong"] = sum(wrong for _, wrong in results)
    return found


def _keys(count: int) -> list[str]:
    return [f"kernel/{number}" for number in range(count)]

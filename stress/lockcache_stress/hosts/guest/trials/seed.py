# SPDX-License-Identifier: Apache-2.0
"""A node that starts from a bundle: the requests of all its ranks together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.rpc import Requests
from lockcache_stress.hosts.guest.site import Site

__all__ = ["seed"]

_RANKS: Final = 64
_KEYS: Final = [f"kernel/{number}" for number in range(300)]
_VALUE: Final = os.urandom(16_384)
_LOCAL: Final = "/run/seeded"


def seed(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield the size of the bundle, the hits of all ranks, and the requests of their node by kind."""
    first, second = site.clients
    site.make("seed")
    with Rank(first) as rank:
        rank.call("open", first.at("seed"))
        rank.call("put_each", _KEYS, _VALUE)
        yield "promoted", rank.call("promote", first.at("seed"), first.at("kernels.lcb"))
        rank.call("close")
    yield "bundle_bytes", os.path.getsize(site.at("kernels.lcb"))
    Path("/proc/sys/vm/drop_caches").write_text("3")
    with ExitStack() as stack:
        ranks = [stack.enter_context(Rank(second)) for _ in range(_RANKS)]
        requests = Requests(second.mount)
        for rank in ranks:
            rank.begin("open", _LOCAL, seed=second.at("kernels.lcb"))
        for rank in ranks:
            rank.result()
        for rank in ranks:
            rank.begin("get_each", _KEYS)
        hits = sum(rank.result() for rank in ranks)
        for rank in ranks:
            rank.call("close")
        found = requests.since()
    yield "hits", hits
    yield "wanted_hits", _RANKS * len(_KEYS)
    yield "kinds", dict(found.most_common())
    yield "reads", found.pop("READ", 0)
    found.pop("DELEGRETURN", 0)  # comes some seconds after the last use, by the client's clock
    yield "other_requests", sum(found.values())

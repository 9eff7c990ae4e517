# SPDX-License-Identifier: Apache-2.0
"""Eight processes on each host want the same eight kernels, in a directory that no process has used."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Site

__all__ = ["herd"]

_EACH: Final = 8
_KEYS: Final = [f"kernel/{number}" for number in range(8)]
_VALUE: Final = os.urandom(20_000)
# Longer than the other processes take to begin waiting.
_COMPUTE_SECONDS: Final = 0.3


def herd(site: Site, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield computations, wrong codes and keys: in the same order, in random order, and after looking up every key.

    If the server can have a clock of whole seconds, also in random order after looking up every key there.
    """
    yield "keys", len(_KEYS)
    yield "processes", _EACH * len(site.clients)
    yield "equal order", _run(site, site.make("herd-equal"), None, has_looked=False)
    yield "random order", _run(site, site.make("herd-random"), seed, has_looked=False)
    yield "looked up before", _run(site, site.make("herd-looked"), None, has_looked=True)
    if coarse := site.make_on_coarse_disk("herd-coarse"):
        yield "the server's clock has whole seconds", _run(site, coarse, seed, has_looked=True)


def _run(site: Site, name: str, seed: int | None, *, has_looked: bool) -> dict[str, int]:
    with ExitStack() as stack:
        ranks = [stack.enter_context(Rank(client)) for client in site.clients for _ in range(_EACH)]
        for rank in ranks:
            rank.begin("open", rank.client.at(name))
        for rank in ranks:
            rank.result()
        if has_looked:
            for rank in ranks:
                rank.begin("get_each", _KEYS)
            for rank in ranks:
                rank.result()
        for number, rank in enumerate(ranks):
            rank.begin("compute_each", _ordered(seed, number), _VALUE, _COMPUTE_SECONDS)
        results = [rank.result() for rank in ranks]
        dropped = sum(rank.call("dropped_writes") for rank in ranks)
    computes, wrong = (sum(each) for each in zip(*results, strict=True))
    return {"computes": computes, "wrong": wrong, "dropped": dropped}


def _ordered(seed: int | None, number: int) -> list[str]:
    return _KEYS if seed is None else random.Random(f"{seed}/{number}").sample(_KEYS, len(_KEYS))

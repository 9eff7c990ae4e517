"""A plain miss: a key that is not there, in a cache that holds others; asking whether a file exists as the floor."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from lockcache_stress.bench.base import Bench, Line, interleaved, open_ours, open_theirs, ratio_line
from lockcache_stress.bench.peers import Store, time_others

__all__ = ["measure"]


def measure(bench: Bench) -> list[Line]:
    """At least 3x faster than cuda.core."""
    ours, theirs = open_ours(bench.ours("miss")), open_theirs(bench.directory("miss"))
    for cache in (ours, theirs):
        if cache is not None:
            cache.update({b"other-%d" % number: b"x" for number in range(64)})
    rounds, calls = bench.pick(201, 3), bench.pick(200, 20)
    empty = bench.directory("empty")
    paths = [f"{empty}/{number}" for number in range(rounds * calls)]
    actions: dict[str, Callable[[], object] | None] = {
        "ours": _getter(ours, rounds * calls),
        "theirs": None if theirs is None else _getter(theirs, rounds * calls),
        "floor": map(os.path.exists, paths).__next__,
    }
    times_us = interleaved(actions, rounds, calls, bench.show)
    rounds, calls = bench.pick(51, 2), bench.pick(100, 10)
    others_us = time_others(bench, "miss", lambda store: _getter(_peopled(store), rounds * calls), rounds, calls)
    return [ratio_line("miss", times_us, 3.0, others_us)]


def _peopled(store: Store) -> Store:
    for number in range(64):
        store.put(b"other-%d" % number, b"x")
    return store


def _getter(cache: Any, calls: int) -> Callable[[], object]:
    """Looks up another key at each call. The keys are made here: to make one takes a tenth of a miss."""
    return map(cache.get, [b"%d" % number for number in range(calls)]).__next__

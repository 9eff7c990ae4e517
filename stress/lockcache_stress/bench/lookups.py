"""Hits and misses. Each is next to cuda.core's, and to what the file system alone takes for it.

A hit of 16 KiB: ours verified and with its use stated; open, read, close as the floor. A plain miss: a key that is not
there, in a cache that holds others; asking whether a file exists as the floor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle
from typing import Final

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line
from lockcache_stress.bench.peers import Store, compare

# As many as a start-up loads again and again; their 256 KiB stay in the processor's cache for all three.
_KEYS: Final = 16


def measure_hit(bench: Bench) -> list[Line]:
    """At least 2.5x faster than cuda.core."""
    pace = bench.pick(201, 3), bench.pick(200, 20)
    others_pace = bench.pick(51, 2), bench.pick(100, 10)
    floor = _plain_files(bench.directory("plain"))
    return [compare(bench, "hit, 16 KiB, verified", _hit_getter, floor, 2.5, pace, others_pace)]


def _hit_getter(store: Store, calls: int) -> Callable[[], object]:
    keys = [b"hit-%d" % number for number in range(_KEYS)]
    for key in keys:
        store.put(key, os.urandom(VALUE_BYTES))
    # By map, here and below: a lambda around each call would be a hundredth of what is compared.
    return map(store.get, cycle(keys)).__next__


def _plain_files(directory: str) -> Callable[[], object]:
    paths = [os.path.join(directory, str(number)) for number in range(_KEYS)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(os.urandom(VALUE_BYTES))

    def read(path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, VALUE_BYTES)
        os.close(fd)

    return map(read, cycle(paths)).__next__


def measure_miss(bench: Bench) -> list[Line]:
    """At least 3x faster than cuda.core."""
    rounds, calls = bench.pick(201, 3), bench.pick(200, 20)
    others_pace = bench.pick(51, 2), bench.pick(100, 10)
    empty = bench.directory("empty")
    floor = map(os.path.exists, [f"{empty}/{number}" for number in range(rounds * calls)]).__next__
    return [compare(bench, "miss", _miss_getter, floor, 3.0, (rounds, calls), others_pace)]


def _miss_getter(store: Store, calls: int) -> Callable[[], object]:
    """Looks up another key at each call. The keys are made here: to make one takes a tenth of a miss."""
    for number in range(64):
        store.put(b"other-%d" % number, b"x")
    return map(store.get, [b"%d" % number for number in range(calls)]).__next__

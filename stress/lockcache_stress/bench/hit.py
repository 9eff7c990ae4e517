"""A hit of 16 KiB: ours verified and with its use stated; cuda.core's; and open, read, close as the floor."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle
from typing import Final

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line
from lockcache_stress.bench.peers import Store, compare

__all__ = ["measure"]

# As many as a start-up loads again and again; their 256 KiB stay in the processor's cache for all three.
_KEYS: Final = 16


def measure(bench: Bench) -> list[Line]:
    """At least 2.5x faster than cuda.core."""
    pace = bench.pick(201, 3), bench.pick(200, 20)
    others_pace = bench.pick(51, 2), bench.pick(100, 10)
    floor = _plain_files(bench.directory("plain"))
    return [compare(bench, "hit, 16 KiB, verified", _getter, floor, 2.5, pace, others_pace)]


def _getter(store: Store, calls: int) -> Callable[[], object]:
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

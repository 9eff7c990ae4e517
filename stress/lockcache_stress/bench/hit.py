"""A hit of 16 KiB: ours verified and with its use stated; cuda.core's; and open, read, close as the floor."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line, interleaved, open_ours, open_theirs, ratio_line
from lockcache_stress.bench.peers import Store, time_others

__all__ = ["measure"]

# As many as a start-up loads again and again; their 256 KiB stay in the processor's cache for all three.
_KEYS: Final = 16


def measure(bench: Bench) -> list[Line]:
    """At least 2.5x faster than cuda.core."""
    keys = [b"hit-%d" % number for number in range(_KEYS)]
    ours, theirs = open_ours(bench.ours("hit")), open_theirs(bench.directory("hit"))
    plain = _plain_files(bench.directory("plain"))
    for cache in (ours, theirs):
        for key in keys if cache is not None else ():
            cache[key] = os.urandom(VALUE_BYTES)
    actions = {"ours": _getter(ours, keys), "theirs": _getter(theirs, keys), "floor": plain}
    times_us = interleaved(actions, bench.pick(201, 3), bench.pick(200, 20), bench.show)
    others_us = time_others(bench, "hit", lambda store: _filled(store, keys), bench.pick(51, 2), bench.pick(100, 10))
    return [ratio_line("hit, 16 KiB, verified", times_us, 2.5, others_us)]


def _filled(store: Store, keys: list[bytes]) -> Callable[[], object]:
    for key in keys:
        store.put(key, os.urandom(VALUE_BYTES))
    return map(store.get, cycle(keys)).__next__


def _getter(cache: Any, keys: list[bytes]) -> Callable[[], object] | None:
    if cache is None:
        return None
    # By map, here and below: a lambda around each call would be a hundredth of what is compared.
    return map(cache.get, cycle(keys)).__next__


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

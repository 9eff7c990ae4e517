"""A put of a new key, 16 KiB, into a directory without a cap; write and rename of a plain file as the floor."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count, repeat
from typing import Any

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line, interleaved, open_ours, open_theirs, ratio_line
from lockcache_stress.bench.peers import time_others

__all__ = ["measure"]


def measure(bench: Bench) -> list[Line]:
    """At least 4x faster than cuda.core."""
    value = os.urandom(VALUE_BYTES)
    ours, theirs = open_ours(bench.ours("put")), open_theirs(bench.directory("put"))
    plain = _plain(bench.directory("plain"), value)
    actions = {"ours": _putter(ours, value), "theirs": _putter(theirs, value), "floor": plain}
    times_us = interleaved(actions, bench.pick(101, 3), bench.pick(24, 10), bench.show)
    others_us = time_others(bench, "put", lambda store: _caller(store.put, value), bench.pick(51, 2), bench.pick(12, 5))
    return [ratio_line("put, new key, 16 KiB", times_us, 4.0, others_us)]


def _putter(cache: Any, value: bytes) -> Callable[[], object] | None:
    if cache is None:
        return None
    return _caller(cache.__setitem__, value)


def _caller(put: Callable[[bytes, bytes], object], value: bytes) -> Callable[[], object]:
    return map(put, map(b"new-%d".__mod__, count()), repeat(value)).__next__


def _plain(directory: str, value: bytes) -> Callable[[], object]:
    numbers = count()

    def write() -> None:
        path = f"{directory}/{next(numbers)}"
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, value)
        os.close(fd)
        os.rename(path + ".new", path)

    return write

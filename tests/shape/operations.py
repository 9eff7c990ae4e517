# SPDX-License-Identifier: Apache-2.0
"""Operations, counted: the functions of the project that one passes in its thread, and the calls of them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import lockcache
from lockcache import FileStreamProgramCache
from tests.daemon.keepers import CAP, Kept

_HOUSE = str(Path(lockcache.__file__).parents[1])
_ROOMS = (f"{_HOUSE}/lockcache/", f"{_HOUSE}/daemon/")


class Passed(NamedTuple):
    """The functions that an operation passes, and the calls."""

    functions: int
    calls: int
    #: Calls of lambdas, comprehensions and generator expressions, which are not among ``calls``.
    nameless: int


def passed(operation: Callable[[], object]) -> Passed:
    """Returns what ``operation`` passes."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_ROOMS):
            calls[code.co_filename, code.co_qualname if sys.version_info >= (3, 11) else code.co_name] += 1

    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(None)
    nameless = {where for where in calls if where[1].endswith(">")}
    named = calls.keys() - nameless
    return Passed(len(named), sum(calls[each] for each in named), sum(calls[each] for each in nameless))


def count_operations() -> dict[str, Passed]:
    """Returns what each operation passes, by its name. A directory in use, whose shards and descriptors are there."""
    counts: dict[str, Passed] = {}
    with tempfile.TemporaryDirectory() as root:
        _count_without_cap(f"{root}/plain", counts)
        _count_with_cap(f"{root}/capped", counts)
        _count_ticks(Path(root) / "kept", counts)
    return counts


def _count_without_cap(path: str, counts: dict[str, Passed]) -> None:
    with FileStreamProgramCache(path) as cache:
        for number in range(40):
            cache[b"k%d" % number] = b"y" * 4000
        cache.get(b"k0")
        cache.get_or_compute(b"k0", bytes)  # what is made at its first use is there
        counts["hit"] = passed(lambda: cache[b"k0"])
        counts["miss"] = passed(lambda: cache.get(b"absent"))
        counts["put, no cap"] = passed(lambda: cache.__setitem__(b"new", b"z" * 4000))
        counts["get_or_compute, miss"] = passed(lambda: cache.get_or_compute(b"computed", lambda: b"z" * 3000))


def _count_with_cap(path: str, counts: dict[str, Passed]) -> None:
    with FileStreamProgramCache(path, max_size_bytes=6 * 2**20) as cache:
        number = 0
        while not cache.stats().evictions:
            number += 1
            cache[b"k%d" % number] = os.urandom(4000)
        cache[b"small"] = b"1" * 100
        # Below the watermark that the last eviction reached.
        counts["put into a capped cache"] = passed(lambda: cache.__setitem__(b"next", b"1" * 4000))
        evictions, evicting = cache.stats().evictions, counts["put into a capped cache"]
        while cache.stats().evictions == evictions:
            number += 1
            evicting = passed(lambda: cache.__setitem__(b"k%d" % number, os.urandom(4000)))  # noqa: B023 (called at once)
        counts["put that evicts"] = evicting
        counts["opening a warm directory"] = passed(lambda: FileStreamProgramCache(path))
        counts["del"] = passed(lambda: cache.__delitem__(b"next"))


def _count_ticks(path: Path, counts: dict[str, Passed]) -> None:
    kept = Kept(path)
    kept.keeper.open()
    try:
        with FileStreamProgramCache(path) as cache:
            kept.keeper.tick()
            counts["tick of the daemon, idle"] = passed(kept.keeper.tick)
            for number in range(99):
                cache[b"%d" % number] = b"x" * (CAP // 100)
        counts["tick of the daemon that sweeps"] = passed(kept.keeper.tick)
        if not kept.said("sweep"):
            raise RuntimeError("the daemon did not sweep")
    finally:
        kept.keeper.close()
        with kept.stop:
            pass  # closes its sockets

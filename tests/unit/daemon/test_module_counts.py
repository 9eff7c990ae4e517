"""Short ways: through how many modules of the project a call goes, counted as it is made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import lockcache
from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.daemon.keepers import CAP, Kept

# As counted: who shortens a way lowers its number. Why they are not 16 and 30: docs/decisions/0025-short-ways.md.
MOST_OF_A_PUT = 26
MOST_OF_A_TICK = 35

_HOUSE = str(Path(lockcache.__file__).parents[1])
_ROOMS = (f"{_HOUSE}/lockcache/", f"{_HOUSE}/daemon/")

# Of one shard: whose lock is open, as in a program that has run for a while.
KEYS = [key for key in (b"%d" % number for number in range(20_000)) if entry_name(key).startswith("00")]


def modules_passed(call: Callable[[], object]) -> set[str]:
    """The modules of the library and the daemon whose functions run meanwhile, in this thread."""
    passed: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_ROOMS):
            passed.add(frame.f_code.co_filename.removeprefix(f"{_HOUSE}/"))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return passed


def test_a_hit_and_a_miss_pass_two_modules(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"here"] = b"value"
        assert len(modules_passed(lambda: cache.get(b"here"))) == 2
        assert len(modules_passed(lambda: cache.get(b"missing"))) == 2


def test_a_put_that_evicts_passes_few_modules(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path, max_size_bytes=100_000) as cache:
        for key in KEYS[:9]:
            cache[key] = b"x" * 10_000
        evictions, passed = cache.stats().evictions, set[str]()
        for key in KEYS[9:]:
            passed = modules_passed(lambda: cache.__setitem__(key, b"x" * 10_000))  # noqa: B023 (called at once)
            if cache.stats().evictions > evictions:
                break
        else:
            raise AssertionError("nothing was evicted")
    assert len(passed) <= MOST_OF_A_PUT, sorted(passed)


def test_a_tick_that_sweeps_passes_few_modules(cache_path: Path, keep: Callable[[Path], Kept]) -> None:
    kept = keep(cache_path)
    with FileStreamProgramCache(cache_path) as cache:
        kept.keeper.tick()
        for number in range(99):
            cache[b"%d" % number] = b"x" * (CAP // 100)
    passed = modules_passed(kept.keeper.tick)
    assert kept.said("sweep")
    assert len(passed) <= MOST_OF_A_TICK, sorted(passed)

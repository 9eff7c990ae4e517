# SPDX-License-Identifier: Apache-2.0
"""Signal handlers that use a cache during its own use wait for nobody, and leave it in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import InMemoryProgramCache, LockTimeoutError, SQLiteProgramCache, TieredProgramCache
from lockcache.resource import ProgramCacheResource
from tests.crash.interrupted import count_steps, run_to

Make = Callable[[Path], ProgramCacheResource]

MAKES: dict[str, Make] = {
    "memory": lambda path: InMemoryProgramCache(max_size_bytes=1000),
    "sqlite": lambda path: SQLiteProgramCache(path / "db", lock_timeout_seconds=30.0),
    "tiered": lambda path: TieredProgramCache(InMemoryProgramCache(), InMemoryProgramCache()),
}

# Each is what the program does when the signal comes.
ACTIONS: dict[str, Callable[[ProgramCacheResource], object]] = {
    "put": lambda cache: cache.__setitem__("k", b"outer" * 10),
    "get": lambda cache: cache.get("k"),
    "delete": lambda cache: cache.__delitem__("k"),
    "compute": lambda cache: cache.get_or_compute("new", lambda: b"computed"),
    "clear": lambda cache: cache.clear(),
}


def remove(cache: ProgramCacheResource, key: str) -> None:
    with contextlib.suppress(KeyError, LockTimeoutError):
        del cache[key]


@pytest.fixture(params=MAKES)
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProgramCacheResource]:
    cache = MAKES[request.param](tmp_path)
    yield cache
    cache.close()


def assert_in_order(cache: ProgramCacheResource) -> None:
    tiers = cache.tiers if isinstance(cache, TieredProgramCache) else (cache,)
    for tier in tiers:
        if isinstance(tier, InMemoryProgramCache):
            assert tier._bytes == sum(len(code) for code, _, _ in tier._entries.values())
    assert cache.get("k") == tiers[-1].get("k"), "no older copy is read than the last tier has"
    assert cache.get("new") == tiers[-1].get("new")
    cache["k"] = b"afterwards"
    assert cache["k"] == b"afterwards"


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_signal_handler_that_uses_the_cache_at_any_step_of_a_use_waits_for_nobody(
    cache: ProgramCacheResource, action: str
) -> None:
    handled: list[bytes | None] = []

    def handler(number: int, frame: Any) -> None:
        handled.append(cache.get("k"))
        cache["k"] = b"in the handler" * 3
        cache["other"] = bytes(400)
        cache.get("k")
        if action != "compute":
            remove(cache, "new")

    def prepare() -> None:
        cache["k"] = b"old"
        remove(cache, "new")

    beyond_the_end: list[int] = []
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        prepare()
        steps = count_steps(lambda: ACTIONS[action](cache))
        for number in range(1, steps + 1, 1 + steps // 150):
            prepare()
            try:
                where = run_to(lambda: ACTIONS[action](cache), lambda: signal.raise_signal(signal.SIGUSR1), number)
            except KeyError:
                where = "deleted"  # the handler's write was evicted, or dropped while the delete was at work
            if not where:
                beyond_the_end.append(number)
            assert_in_order(cache)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(handled) > 20
    # The first use, whose steps were counted, may have had something to do that the others had not.
    assert all(number > 0.9 * steps for number in beyond_the_end), beyond_the_end

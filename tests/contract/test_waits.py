# SPDX-License-Identifier: Apache-2.0
"""A caller that waits and is served is one hit and one wait; one that waits and computes itself is one miss."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import pytest

from lockcache import CacheStats, RemoteProgramCache, TieredProgramCache, Turn
from tests.contract.backends import BackEnd, each_with_all_ways
from tests.processes.crowd import crowd
from tests.threads import running
from tests.waiting import telling_of_waits

CALLERS = 8
HANG_SECONDS = 60

#: Back ends whose callers wait within their process only.
_THREADS_ALONE = ("memory", "sqlite")


class Gate:
    """How callers meet: the one with the turn computes until all others wait."""

    def __init__(self) -> None:
        context = get_context("fork")
        self._computing, self._waiting = context.Event(), context.Semaphore(0)

    def begin(self) -> None:
        """State that this caller has the turn."""
        self._computing.set()

    def until_begun(self) -> None:
        assert self._computing.wait(HANG_SECONDS)

    def wait(self) -> None:
        """State that this caller waits."""
        self._waiting.release()

    def until_all_wait(self, callers: int = CALLERS - 1) -> None:
        for _ in range(callers):
            assert self._waiting.acquire(timeout=HANG_SECONDS)


def _get_or_compute(cache: Any, compute: Callable[[], bytes]) -> bytes:
    return cache.get_or_compute("k", compute)


def _get_or_compute_entry(cache: Any, compute: Callable[[], bytes]) -> bytes:
    return cache.get_or_compute_entry("k", compute).code


def _begin_and_store(cache: Any, compute: Callable[[], bytes]) -> bytes:
    found = cache.begin("k")
    if isinstance(found, Turn):
        with found:
            found = found.store(compute())
    return found.code


def _memoized() -> bytes:
    return _computed_by()


_computed_by: Callable[[], bytes]


def _memoize(cache: Any, compute: Callable[[], bytes]) -> bytes:
    global _computed_by
    _computed_by = compute
    return cache.memoize(_memoized)()


def _asynchronously(cache: Any, compute: Callable[[], bytes]) -> bytes:
    import asyncio

    return asyncio.run(cache.aget_or_compute("k", compute))


ENTRIES = [_get_or_compute, _get_or_compute_entry, _begin_and_store, _memoize, _asynchronously]


def _first(cache: Any, entry: Callable[..., bytes], gate: Gate) -> bytes:
    def compute() -> bytes:
        gate.begin()
        gate.until_all_wait()
        return b"code"

    return entry(cache, compute)


def _other(cache: Any, entry: Callable[..., bytes], gate: Gate) -> bytes:
    gate.until_begun()
    with telling_of_waits(gate.wait):
        return entry(cache, lambda: b"computed again")


def _fail(cache: Any, entry: Callable[..., bytes], gate: Gate) -> bytes:
    def compute() -> bytes:
        gate.begin()
        gate.until_all_wait(1)
        raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        entry(cache, compute)
    return b""


def _die(cache: Any, entry: Callable[..., bytes], gate: Gate) -> bytes:
    def compute() -> bytes:
        gate.begin()
        gate.until_all_wait(1)
        os.kill(os.getpid(), signal.SIGKILL)
        return b"never"

    return entry(cache, compute)


def _store_too_much(cache: Any, entry: Callable[..., bytes], gate: Gate) -> bytes:
    def compute() -> bytes:
        gate.begin()
        gate.until_all_wait(1)
        return b"x" * 1000

    return entry(cache, compute)


def _counts(stats: CacheStats) -> tuple[int, int, int, int, int]:
    return stats.hits, stats.misses, stats.puts, stats.waits, stats.dropped_writes


def _call(act: Callable[..., bytes], make: Callable[[], Any], entry: Callable[..., bytes], gate: Gate) -> Any:
    """Returns what one process got and counted."""
    with make() as cache:
        code = act(cache, entry, gate)
        if isinstance(cache, RemoteProgramCache | TieredProgramCache):
            cache.close()  # what is sent in the background is counted then
        return code, _counts(cache.stats())


@pytest.fixture
def make_in_process(make: Callable[..., Any], back_end: BackEnd) -> Callable[..., Any]:
    """Makes caches in processes, whose callers wait for each other."""
    if str(back_end) in _THREADS_ALONE:
        pytest.skip("its callers wait within their process only")
    make().close()
    return functools.partial(make, **back_end.patience)


@each_with_all_ways(ENTRIES)
def test_of_eight_processes_one_misses_and_seven_hit(make_in_process: Any, way: Callable[..., bytes]) -> None:
    gate = Gate()
    callers = [(act, make_in_process, way, gate) for act in (_first, *[_other] * (CALLERS - 1))]
    with crowd("fork", _call, callers) as processes:
        results = processes.results()
    assert [code for code, _ in results] == [b"code"] * CALLERS
    assert results[0][1] == (0, 1, 1, 0, 0)
    assert [counts for _, counts in results[1:]] == [(1, 0, 0, 1, 0)] * (CALLERS - 1)


@each_with_all_ways(ENTRIES[:3])
def test_of_eight_threads_one_misses_and_seven_hit(make: Any, back_end: BackEnd, way: Callable[..., bytes]) -> None:
    cache, gate = make(**back_end.patience), Gate()
    with telling_of_waits(gate.wait), running(_first, [(cache, way, gate)]) as one:
        gate.until_begun()
        with running(way, [(cache, lambda: b"computed again")] * (CALLERS - 1)) as others:
            pass
    assert [each.result() for each in (*one, *others)] == [b"code"] * CALLERS
    if back_end.has_server:
        cache.close()
    assert _counts(cache.stats()) == (CALLERS - 1, 1, 1, CALLERS - 1, 0)


def test_a_computation_that_fails_is_a_miss_and_so_is_the_next_one(make_in_process: Any) -> None:
    gate = Gate()
    callers = [(act, make_in_process, _get_or_compute, gate) for act in (_fail, _other)]
    with crowd("fork", _call, callers) as processes:
        assert processes.results() == [(b"", (0, 1, 0, 0, 0)), (b"computed again", (0, 1, 1, 0, 0))]


def test_who_computes_for_a_killed_process_has_missed(make_in_process: Any) -> None:
    gate = Gate()
    with (
        crowd("fork", _call, [(_die, make_in_process, _get_or_compute, gate)]),
        crowd("fork", _call, [(_other, make_in_process, _get_or_compute, gate)]) as other,
    ):
        assert other.results() == [(b"computed again", (0, 1, 1, 0, 0))]


def test_after_a_dropped_write_each_caller_has_missed(make_in_process: Any, back_end: BackEnd) -> None:
    make, gate = functools.partial(make_in_process, max_size_bytes=back_end.cap_for(1, 100)), Gate()
    make().close()
    callers = [(act, make, _get_or_compute, gate) for act in (_store_too_much, _other)]
    with crowd("fork", _call, callers) as processes:
        assert processes.results() == [(b"x" * 1000, (0, 1, 0, 0, 1)), (b"computed again", (0, 1, 1, 0, 0))]


def test_waiting_without_a_turn_is_a_hit_if_it_is_served_and_else_a_miss(make: Any, back_end: BackEnd) -> None:
    cache = make(**back_end.patience)
    turn = cache.begin("k")
    with running(cache.wait, [("k", 0)]) as in_vain:
        pass
    assert ([each.result() for each in in_vain], _counts(cache.stats())) == ([None], (0, 2, 0, 0, 0))
    waiting = threading.Event()
    with telling_of_waits(waiting.set), running(cache.wait, [("k", HANG_SECONDS)]) as served:
        assert waiting.wait(HANG_SECONDS)
        turn.store(b"code")
    assert [each.result().code for each in served] == [b"code"]
    assert _counts(cache.stats())[:2] == (1, 2)
    assert cache.stats().waits == 1


def test_a_compilation_that_cannot_be_cached_is_counted(cache: Any, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        cache._note_uncacheable("it takes the time of the compilation in")
    assert cache.stats().uncacheable == 2
    assert sum("it takes the time" in record.getMessage() for record in caplog.records) <= 1  # once in a process

# SPDX-License-Identifier: Apache-2.0
"""A computation that fails: all that waited for it compute at once, and none of them after another."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import pytest

from lockcache import Turn
from tests.contract.backends import BackEnd, each_with_all_ways
from tests.contract.test_waits import CALLERS, ENTRIES, HANG_SECONDS, Gate, _get_or_compute, make_in_process  # noqa: F401 (a fixture)
from tests.processes.crowd import crowd
from tests.threads import running
from tests.waiting import telling_of_waits


class ComputeFailedError(Exception):
    pass


def _fail_first(entry: Callable[..., bytes], cache: Any, gate: Gate) -> None:
    def compute() -> bytes:
        gate.begin()
        gate.until_all_wait()
        raise ComputeFailedError("first")

    with pytest.raises(ComputeFailedError, match="first"):
        entry(cache, compute)


def _fail_together(entry: Callable[..., bytes], cache: Any, gate: Gate, together: Any) -> None:
    """Compute only while all others that waited do: one after the other they would never end."""

    def compute() -> bytes:
        together.wait(HANG_SECONDS)
        raise ComputeFailedError("mine")

    gate.until_begun()
    with telling_of_waits(gate.wait), pytest.raises(ComputeFailedError, match="mine"):
        entry(cache, compute)


def _in_process(act: Callable[..., None], make: Callable[[], Any], entry: Any, *more: Any) -> None:
    with make() as cache:
        act(entry, cache, *more)


@each_with_all_ways(ENTRIES)
def test_processes_that_waited_for_a_computation_that_failed_compute_at_once(
    make_in_process: Any,  # noqa: F811
    way: Callable[..., bytes],
) -> None:
    gate, together = Gate(), get_context("fork").Barrier(CALLERS - 1)
    callers: list[Any] = [(_fail_first, make_in_process, way, gate)]
    callers += [(_fail_together, make_in_process, way, gate, together)] * (CALLERS - 1)
    with crowd("fork", _in_process, callers) as processes:
        assert processes.results() == [None] * CALLERS


def test_threads_that_waited_for_a_computation_that_failed_compute_at_once(make: Any, back_end: BackEnd) -> None:
    cache, gate, together = make(**back_end.patience), Gate(), threading.Barrier(CALLERS - 1)

    def compute() -> bytes:
        together.wait(HANG_SECONDS)
        raise ComputeFailedError("mine")

    def wait_and_fail() -> None:
        with pytest.raises(ComputeFailedError, match="mine"):
            cache.get_or_compute("k", compute)

    with telling_of_waits(gate.wait), running(_fail_first, [(_get_or_compute, cache, gate)]):
        gate.until_begun()
        with running(wait_and_fail, [()] * (CALLERS - 1)):
            pass
    assert cache.get("k") is None


def test_a_turn_that_is_given_up_without_a_failure_goes_to_one_of_those_who_wait(make: Any, back_end: BackEnd) -> None:
    cache, waiting = make(**back_end.patience), threading.Semaphore(0)
    turn, computed = cache.begin("k"), []

    def compute() -> bytes:
        computed.append(1)
        return b"code"

    with telling_of_waits(waiting.release), running(cache.get_or_compute, [("k", compute)] * 3) as others:
        for _ in range(3):
            assert waiting.acquire(timeout=HANG_SECONDS)
        turn.give_up()
    assert [each.result() for each in others] == [b"code"] * 3
    assert computed == [1]


def test_an_interrupt_is_no_failure_of_the_computation(make: Any) -> None:
    cache, ended = make(), []
    found = cache.begin("k")
    assert isinstance(found, Turn)
    own, found._end = found._end, ended.append
    with contextlib.suppress(KeyboardInterrupt), found:
        raise KeyboardInterrupt
    assert ended == [False]
    if own is not None:
        own(False)

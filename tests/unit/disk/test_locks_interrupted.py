# SPDX-License-Identifier: Apache-2.0
"""Shard locks under interrupts that come again while the first one is dealt with, and closed at any moment of a use."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockcache.filestream.disk.holds import Hold
from lockcache.filestream.disk.locks import ProcessLock
from tests.crash.interrupted import count_steps, interrupt_at, interrupts, run_to
from tests.unit.material import descriptors, descriptors_to_begin_with

# Coverage has a lock of its own, which an interrupt leaves held: the next function that is called waits for ever.
pytestmark = pytest.mark.unmeasured


@pytest.fixture(autouse=True)
def _lose_what_is_raised_in_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the error like Python does after printing it; pytest keeps it, with the frames that had the hold."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[ProcessLock]:
    lock = ProcessLock(str(tmp_path / "lock"), 30.0)
    with lock:
        pass  # opened
    yield lock
    lock.close()


def hold_and_release(lock: ProcessLock) -> None:
    hold = lock.try_hold()
    assert hold is not None
    hold.release()


def assert_free(lock: ProcessLock) -> None:
    """Assert that the lock is free for this process and, when it is done with it, for others."""
    hold_and_release(lock)
    other = ProcessLock(lock.path, 0.0)
    hold_and_release(other)
    other.close()


def drop(left: list[Hold]) -> Callable[[], None]:
    """Returns a function that drops a hold like an interrupt does: no code has it any more."""
    return left.clear


def test_an_interrupt_while_the_lock_of_a_hold_that_is_gone_is_given_back_leaves_it_free(lock: ProcessLock) -> None:
    def prepare() -> Callable[[], None]:
        hold = lock.try_hold()
        assert hold is not None
        return drop([hold])

    steps = count_steps(prepare())
    assert steps > 50, "the callback is among what is traced"
    for number in range(1, steps + 1):
        list(interrupts(prepare, [number]))
        assert_free(lock)
    # What was left of a line of heirs goes with the next one.
    left = [lock.try_hold()]
    interrupt_at(left.clear, 5)
    hold_and_release(lock)
    assert not lock._heirs


@pytest.mark.slow
def test_two_interrupts_anywhere_in_a_use_and_in_its_clean_up_leave_the_lock_free(lock: ProcessLock) -> None:
    before = descriptors_to_begin_with()
    for first in range(1, count_steps(lambda: hold_and_release(lock)) + 1):
        for second in random.Random(first).sample(range(1, 120), 12):
            # The second one comes when the first one's frames go, which had the hold.
            raised = interrupt_at(lambda: hold_and_release(lock), first)
            interrupt_at(raised.clear, second)
            assert_free(lock)
    assert {name.split()[1] for name in descriptors()} == {name.split()[1] for name in before}


def test_a_thread_that_looks_at_a_hold_while_it_is_dropped_is_waited_for(lock: ProcessLock) -> None:
    looked_at = [lock.try_hold()]
    assert looked_at[0] is not None
    looking = threading.Thread(target=lambda: (wait_until_waited_for(), looked_at.clear()))
    is_waiting, sleep = threading.Event(), time.sleep

    def wait_until_waited_for() -> None:
        assert is_waiting.wait(30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", lambda seconds: (is_waiting.set(), sleep(seconds)))
        looking.start()
        lock.hold(30.0).release()
        looking.join(30)
    assert_free(lock)


@pytest.mark.slow
def test_threads_that_are_interrupted_twice_exclude_each_other(lock: ProcessLock) -> None:
    inside: list[int] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def use(number: int) -> None:
        hold = lock.hold(30.0)
        inside.append(number)
        assert inside == [number]
        os.stat(lock.path)  # lets another thread run, if the lock does
        inside.remove(number)
        hold.release()

    def work(number: int) -> None:
        choose = random.Random(number)
        for _ in range(300):
            raised = interrupt_at(lambda: use(number), choose.randrange(1, 250))
            interrupt_at(raised.clear, choose.randrange(1, 120))

    try:
        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work, number) for number in range(4)]:
                future.result(100)
    finally:
        sys.setswitchinterval(before)
    assert_free(lock)


def test_a_lock_that_is_closed_at_any_step_of_a_use_is_open_to_its_user_and_closed_afterwards(
    lock: ProcessLock,
) -> None:
    def use() -> None:
        hold = lock.try_hold()
        assert hold is not None
        assert os.path.samestat(os.fstat(lock._fd), os.stat(lock.path))
        hold.release()

    def close() -> None:
        thread = threading.Thread(target=lock.close)
        thread.start()
        thread.join(30)

    # From the first step in which the lock is held: one that is closed before that is opened again.
    for number in range(30, count_steps(use) + 1):
        held = []
        where = run_to(use, lambda: (held.append(bool(lock._holders)), close()), number)  # noqa: B023
        if held == [True]:
            assert lock._fd == lock._file.number == -1, where
        assert_free(lock)


@pytest.mark.slow
def test_no_descriptor_is_closed_under_a_thread_that_uses_it(lock: ProcessLock) -> None:
    others = ProcessLock(lock.path, 30.0)
    count, ended = [0], threading.Event()

    def use(mine: ProcessLock) -> None:
        for _ in range(300):
            with mine:
                found = os.fstat(mine._fd)
                seen = count[0]
                assert os.path.samestat(found, os.stat(lock.path))
                count[0] = seen + 1
                assert os.path.samestat(found, os.fstat(mine._fd))

    def close() -> None:
        while not ended.is_set():
            lock.close()
            others.close()

    with ThreadPoolExecutor(5) as pool:
        closing = pool.submit(close)
        using = [pool.submit(use, mine) for mine in (lock, lock, others, others)]
        try:
            for future in using:
                future.result(100)
        finally:
            ended.set()
        closing.result(100)
    assert count == [1200]
    others.close()
    lock.close()
    assert lock._fd == others._fd == -1

# SPDX-License-Identifier: Apache-2.0
"""A limit finds processes that hang, on a busy machine too, and never one that only waits for a processor."""

from __future__ import annotations

import os
import time
from multiprocessing.process import BaseProcess

import pytest

from lockcache_stress.processes import Patience, start_process, wait_until

_SPINNING = 6


def _spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


def _sleep() -> None:
    time.sleep(600)


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()
        process.join()
        process.close()


@pytest.mark.slow
def test_a_limit_does_not_pass_while_processes_wait_for_a_processor() -> None:
    cpu = min(os.sched_getaffinity(0))
    spinning = [start_process(_spin, cpu) for _ in range(_SPINNING)]
    try:
        assert wait_until(lambda: all(os.sched_getaffinity(each.pid or 0) == {cpu} for each in spinning), 60)
        patience, began = Patience(2.0), time.monotonic()
        # Each runs for a sixth of the time. The first second counts, because nothing was looked at before.
        while time.monotonic() - began < 3.5:
            assert not patience.is_over()
            time.sleep(0.01)
    finally:
        _end(spinning)


@pytest.mark.slow
def test_a_limit_passes_while_all_sleep() -> None:
    asleep = [start_process(_sleep) for _ in range(3)]
    try:
        assert not wait_until(lambda: False, 1.2)
    finally:
        _end(asleep)


def test_a_short_limit_passes() -> None:
    assert not wait_until(lambda: False, 0.01)
    assert not wait_until(lambda: False, 0.0)
    assert wait_until(lambda: True, 0.0)


def test_a_limit_does_not_pass_while_the_process_that_waits_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    patience, now = Patience(5.0), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600.0)  # as behind a SIGSTOP of an hour
    assert not patience.is_over()


def test_a_limit_that_is_asked_seldom_passes_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now, delay = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr("lockcache_stress.processes._delays", lambda: {1: delay[0]})
    patience = Patience(10.0)
    while not patience.is_over():
        now[0] += 1.8
        delay[0] += 1.1
    assert now[0] < 30

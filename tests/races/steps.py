# SPDX-License-Identifier: Apache-2.0
"""Forcing an order: a thread stops at a named step until the test lets it go on. No wait is by time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

# Far longer than any step takes, for tests that would hang.
_HANG_SECONDS = 60


_stops: list[Stop] = []


class Stop:
    """A place in the code at which the first thread stops."""

    def __init__(self) -> None:
        self._reached, self._free = threading.Event(), threading.Event()
        self._taken = threading.Lock()
        _stops.append(self)

    def __call__(self) -> None:
        """Stop the first thread that comes here. Every later thread passes."""
        if self._taken.acquire(blocking=False):
            self._reached.set()
            assert self._free.wait(_HANG_SECONDS), "nobody let this thread go on"

    def wait_until_reached(self) -> None:
        assert self._reached.wait(_HANG_SECONDS), "no thread came to this step"

    def go_on(self) -> None:
        self._free.set()


def stop_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool] = lambda *_: True
) -> Stop:
    """Stop before the first call of ``owner.name`` whose arguments ``when`` accepts."""
    return _stop(monkeypatch, owner, name, when, before=True)


def stop_after(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool] = lambda *_: True
) -> Stop:
    """Stop like :func:`stop_before`, but after the call and before its return."""
    return _stop(monkeypatch, owner, name, when, before=False)


def _stop(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool], *, before: bool) -> Stop:
    real, stop = getattr(owner, name), Stop()

    def stopping(*arguments: Any, **keywords: Any) -> Any:
        matches = when(*arguments)
        if matches and before:
            stop()
        result = real(*arguments, **keywords)
        if matches and not before:
            stop()
        return result

    monkeypatch.setattr(owner, name, stopping)
    return stop


@contextmanager
def alongside(work: Callable[..., Any], *arguments: Any) -> Iterator[Future[Any]]:
    """Run ``work`` in a thread until the block ends. Raises the thread's error at the end of the block."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, *arguments)
        try:
            yield future
        except BaseException:
            for stop in _stops:
                stop.go_on()  # so that a test that has failed does not hang too
            raise
        future.result(_HANG_SECONDS)


def into(folder: str) -> Callable[..., bool]:
    """Returns a predicate that accepts renames into that folder."""
    return lambda source, target, *_: f"/{folder}/" in str(target)


def of(folder: str) -> Callable[..., bool]:
    """Returns a predicate that accepts calls with a path in that folder."""
    return lambda path, *_: f"/{folder}/" in str(path)

# SPDX-License-Identifier: Apache-2.0
"""Signals interrupt workers wherever they are in a put, a get or a get_or_compute, and they go on.

Each worker has an alarm of its own, whose handler raises; the interrupted call may have taken effect or not, and counts
as a write that never returned. Proves that an interrupt neither kills nor leaks: after each interrupt the worker lists
its own open files, of which none may be locked and only locks and the usage page may be open; no other process waits
because of an interrupt, and one recount makes the accounting exact.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final, TypeVar, cast

from lockcache import Entry, ProgramCacheResource
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker, zero

_KEYS = 40
_INTERRUPTED = 0.2
# Operations take some 100 us, more on a busy machine and with an eviction.
_LATEST_SECONDS = 0.001
_LEASE_SECONDS = 10.0
_KEPT: Final = ("/lockcache/locks/", "/lockcache/state")

_T = TypeVar("_T")


class _InterruptError(BaseException):
    """The error of the handler: not an Exception, which code on the way up might handle."""


class _Interrupted:
    """A cache whose calls an alarm interrupts, now and then."""

    def __init__(self, worker: Worker) -> None:
        self._cache, self._rng = worker.cache, worker.rng
        self._is_inside = False
        signal.signal(signal.SIGALRM, self._interrupt)

    def get(self, key: bytes) -> bytes | None:
        return self._run(lambda: self._cache.get(key))

    def __setitem__(self, key: bytes, value: object) -> None:
        self._run(lambda: self._cache.__setitem__(key, value))

    def get_or_compute_entry(self, key: bytes, compute: Callable[[], Entry]) -> Entry:
        return self._run(lambda: self._cache.get_or_compute_entry(key, compute))

    def _run(self, call: Callable[[], _T]) -> _T:
        if self._rng.random() >= _INTERRUPTED:
            return call()
        after_seconds = self._rng.uniform(1e-6, _LATEST_SECONDS)
        try:
            self._is_inside = True
            signal.setitimer(signal.ITIMER_REAL, after_seconds)
            return call()
        finally:
            self._is_inside = False

    def _interrupt(self, number: int, frame: object) -> None:
        if self._is_inside:
            self._is_inside = False
            raise _InterruptError


def make_step(worker: Worker) -> Step:
    """Write, read and compute, and look after each interrupt what it left open."""
    rng = worker.rng
    worker.cache = cast(ProgramCacheResource, _Interrupted(worker))

    def step() -> bool:
        if _is_interrupted(worker, rng.randrange(_KEYS)):
            worker.count("troubles")
            _check_open_files(worker)
        return True

    return step


def _is_interrupted(worker: Worker, key: int) -> bool:
    # A function of its own, so that the objects that the interrupt's traceback keeps alive are gone when it returns.
    try:
        worker.use(key, (300, 9000, 50_000), writes=0.4, computes=0.2)
    except _InterruptError:
        return True
    return False


def _check_open_files(worker: Worker) -> None:
    left = [f"{path}{': locked' if is_locked else ''}" for path, is_locked in _open_files(worker.plan.directory)]
    if left:
        worker.count("failures")
        worker.report(error=f"after an interrupt this is open or locked: {', '.join(left)}")


def _open_files(directory: str) -> list[tuple[str, bool]]:
    """Returns the files in the cache directory that this process should not have open, and whether each is locked."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
            with open(f"/proc/self/fdinfo/{number}") as file:
                is_locked = "FLOCK" in file.read()
        except OSError:
            continue  # the descriptor of the listing itself
        if path.startswith(directory) and (is_locked or not any(kept in path for kept in _KEPT)):
            found.append((path, is_locked))
    return found


SCENARIO = Scenario(
    "interrupts",
    "signals interrupt the workers anywhere in their calls",
    make_step,
    processes=4,
    max_size_bytes=MIB,
    keys=_KEYS,
    checks=lambda outcome: [zero("interrupts that left something open or locked", outcome.totals["failures"])],
    must_happen={"troubles": "interrupts"},
    # The reservation of a write that was interrupted in its last step stays on the usage page until a recount.
    recounts_first=True,
    extra={"cache": {"lease_timeout_seconds": _LEASE_SECONDS}, "longest_wait_seconds": _LEASE_SECONDS},
)

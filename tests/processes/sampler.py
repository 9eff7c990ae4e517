# SPDX-License-Identifier: Apache-2.0
"""Watching the used bytes of a file system, read as fast as possible, from a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lockcache_stress.run.sampler import used_bytes
from tests.processes.crowd import HANG_SECONDS


@contextlib.contextmanager
def watch_bytes_in_use(path: str | Path) -> Iterator[Callable[[], tuple[int, int]]]:
    """Sample until the yielded function is called, which returns (peak bytes, number of samples)."""
    context = multiprocessing.get_context("fork")
    stop, (receiver, sender) = context.Event(), context.Pipe(duplex=False)
    started = context.Event()
    process = context.Process(target=_sample, args=(str(path), started, stop, sender), daemon=True)
    process.start()

    def finish() -> tuple[int, int]:
        stop.set()
        assert receiver.poll(HANG_SECONDS)
        peak, samples = receiver.recv()
        return peak, samples

    try:
        assert started.wait(HANG_SECONDS)
        yield finish
    finally:
        stop.set()
        process.join()
        process.close()
        receiver.close()
        sender.close()


def _sample(path: str, started: Any, stop: Any, sender: Any) -> None:
    peak = samples = 0
    started.set()
    while not stop.is_set():
        for _ in range(50):
            peak = max(peak, used_bytes(path))
        samples += 50
    sender.send((peak, samples))

"""Ctrl-C reaches every process of a terminal's group; here only the parent may act on it. They end with it.

Children that died by themselves would count as crashes, print tracebacks of their imports, leave the parent waiting.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.pool import Pool
from typing import Final

__all__ = ["die_with_parent", "interrupts_blocked", "start_pool", "wait_until"]

_PR_SET_PDEATHSIG: Final = 1


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes that are started in this block never get SIGINT: they inherit the mask.

    One that reaches us meanwhile is delivered when the block ends.
    """
    # Starting the tracker unblocks SIGINT at its end, so it has to be running before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_pool(processes: int) -> Pool:
    """Returns a pool of spawned processes that Ctrl-C does not reach: for a ``with`` block."""
    with interrupts_blocked():
        return multiprocessing.get_context("spawn").Pool(processes)


def wait_until(condition: Callable[[], object], seconds: float, *, every_seconds: float = 0.01) -> bool:
    """Wait for what another process does, at most so long; whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_seconds)
    return True


def die_with_parent() -> None:
    """A parent that is SIGKILLed takes this process along, also if it had stopped it to look at the disk."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

"""Ctrl-C reaches every process of a terminal's group; here only the parent may act on it.

Children that died by themselves would count as crashes, print tracebacks of their imports, leave the parent waiting.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

__all__ = ["interrupts_blocked"]


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

"""Leases on the server's disk."""

from __future__ import annotations

import os
import time
from typing import Final

from lockcache.lowlevel import Layout

__all__ = ["wait_for_lease"]

_SECONDS: Final = 60.0


def wait_for_lease(directory: str) -> None:
    """Wait until a process computes a key of this directory. Raises :class:`TimeoutError` if none does."""
    deadline = time.monotonic() + _SECONDS
    folder = Layout(directory).leases
    while not os.path.isdir(folder) or not os.listdir(folder):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody took a lease in {_SECONDS:.0f} s")
        time.sleep(0.05)

"""Leases as the server's disk shows them."""

from __future__ import annotations

import os
import time
from typing import Final

__all__ = ["wait_for_lease"]

_SECONDS: Final = 60.0


def wait_for_lease(directory: str) -> None:
    """Wait until somebody computes a key of this directory. Raises :class:`TimeoutError` if nobody does."""
    deadline = time.monotonic() + _SECONDS
    while not any(files for _, _, files in os.walk(os.path.join(directory, "leases"))):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody took a lease in {_SECONDS:.0f} s")
        time.sleep(0.05)

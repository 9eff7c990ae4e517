"""What is said to the user and ends with exit code 2; and what a scenario raises on purpose."""

from __future__ import annotations

__all__ = ["ComputeFailedError", "UnusableError"]


class UnusableError(Exception):
    """What was asked for cannot be had here; the message says what to do."""


class ComputeFailedError(Exception):
    """A computation that a scenario lets fail, to see what becomes of those who wait for it."""

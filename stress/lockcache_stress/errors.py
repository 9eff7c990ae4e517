"""What is said to the user and ends with exit code 2."""

from __future__ import annotations

__all__ = ["UnusableError"]


class UnusableError(Exception):
    """What was asked for cannot be had here; the message says what to do."""

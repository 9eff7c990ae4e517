"""Errors: one that is reported to the user and ends with exit code 2, and one that a scenario raises on purpose."""

from __future__ import annotations


class UnusableError(Exception):
    """What was asked for cannot be had here; the message says what to do."""


class ComputeFailedError(Exception):
    """A computation that a scenario lets fail, to see what becomes of the processes that wait for it."""

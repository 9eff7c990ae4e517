# SPDX-License-Identifier: Apache-2.0
"""Errors: one that is reported to the user and ends with exit code 2, and one that a scenario raises on purpose."""

from __future__ import annotations


class UnusableError(Exception):
    """Raised for something that cannot be had here. The message says what to do."""


class ComputeFailedError(Exception):
    """Raised by a computation that fails on purpose, while other processes wait for it."""

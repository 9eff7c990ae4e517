# SPDX-License-Identifier: Apache-2.0
"""A block whose error never reaches a compilation: the framework's own cache takes over.

Keeps invariant 7 (never take the job down) for all adapters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from lockcache.filestream.accounting import note_own_cache

__all__ = ["NeverRaising", "warn"]

_log = logging.getLogger("lockcache")


class NeverRaising:
    """A block. ``survives`` is called with an :class:`Exception` in it, and returns False where the caller gets it."""

    def __init__(self, survives: Callable[[Exception], bool]) -> None:
        self._survives = survives

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, Exception) and self._survives(error)


_warned: set[str] = set()


def warn(framework: str, error: Exception) -> None:
    """Say once for each framework why it goes on with its own cache."""
    if framework not in _warned:
        _warned.add(framework)
        note_own_cache(framework, f"{type(error).__name__}: {error}")
        _log.warning("%s goes on with its own cache: %s: %s", framework, type(error).__name__, error)

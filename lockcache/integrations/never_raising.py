# SPDX-License-Identifier: Apache-2.0
"""A block whose error never reaches a compilation: the framework's own cache takes over.

Keeps invariant 7 (never take the job down) for :mod:`lockcache.integrations.adapter`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

__all__ = ["NeverRaising"]


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

"""Bytes at moments of a run, for a plot: bounded, however long the run, and never without the peak."""

from __future__ import annotations

from typing import Final

__all__ = ["Samples"]

# More than a plot has columns; past twice as many they are halved.
_KEPT: Final = 1000


class Samples:
    """(seconds, bytes) in the order of time. Where there are too many, the larger of two neighbours stays."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def add(self, seconds: float, count_bytes: int) -> None:
        """Keep one more."""
        self._points.append((seconds, count_bytes))
        if len(self._points) >= 2 * _KEPT:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [max(pair, key=lambda point: point[1]) for pair in pairs]

    def points(self) -> list[tuple[float, int]]:
        """What is left of them."""
        return list(self._points)

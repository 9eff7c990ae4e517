"""Bytes at moments of a run, for a plot: bounded, however long the run, and never without the peak."""

from __future__ import annotations

from typing import Final

__all__ = ["Samples"]

# More than a plot has columns; past twice as many they are halved.
_KEPT: Final = 1000


class Samples:
    """(seconds, bytes) in the order of time. Where there are too many, the largest of several neighbours stays."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        #: How many neighbours share a point; the same all along, so that the past is as dense as the present.
        self._each = 1
        self._in_last = 1

    def add(self, seconds: float, count_bytes: int) -> None:
        """Keep one more."""
        point = (seconds, count_bytes)
        if self._in_last < self._each:
            self._in_last += 1
            self._points[-1] = _larger(self._points[-1], point)
            return
        self._points.append(point)
        self._in_last = 1
        if len(self._points) >= 2 * _KEPT:
            self._points = [_larger(*pair) for pair in zip(self._points[::2], self._points[1::2], strict=True)]
            self._in_last = self._each + 1
            self._each *= 2

    def points(self) -> list[tuple[float, int]]:
        """What is left of them."""
        return list(self._points)


def _larger(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return max(one, other, key=lambda point: point[1])

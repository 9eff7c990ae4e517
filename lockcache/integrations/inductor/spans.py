# SPDX-License-Identifier: Apache-2.0
"""Spans of time in which parts were compiled, so that the cost of a whole is stated without that of its parts.

A graph's kernels have entries of their own, and AOTAutograd's result its graphs. Each hit is said to save the cost of
its entry: if a whole's cost contained its parts, a run that found all of them would count them twice or more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

__all__ = ["Spans"]


class Spans:
    """When parts of one kind were compiled in this process, in nanoseconds of ``time.perf_counter_ns``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[int, int]] = []

    def add(self, begin_ns: int, end_ns: int) -> None:
        """Note a span."""
        with self._lock:
            self._spans.append((begin_ns, end_ns))

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Note the span of this block, however it is left."""
        begin_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(begin_ns, time.perf_counter_ns())

    def covered_ns(self, begin_ns: int, end_ns: int) -> int:
        """Returns how much of a time the spans cover. Where several threads compiled at once, it counts once."""
        covered_ns, at_ns = 0, begin_ns
        with self._lock:
            spans = sorted(self._spans)
        for begins_ns, ends_ns in spans:
            from_ns, until_ns = max(begins_ns, at_ns), min(ends_ns, end_ns)
            if until_ns > from_ns:
                covered_ns += until_ns - from_ns
                at_ns = until_ns
        return covered_ns

# SPDX-License-Identifier: Apache-2.0
"""Compiled again: counts misses of programs that had been stored before, as a cap that is too small makes them.

Of the misses that programs report (:mod:`lockcache.filestream.inspect.misses`, the last few of each report): later
ones replace them in the ring, so this is a sample. The counters say how many misses there are, and ``lockcache why``
says of single ones in which part their keys differ from stored ones.

Keeps the memory bounded, whatever programs report. Takes no lock and reads no entry.
"""

from __future__ import annotations

import time
from typing import Final

from lockcache.filestream.inspect import read_misses
from lockcache.lowlevel import Layout

__all__ = ["CompiledAgain"]

_BETWEEN_LOOKS_SECONDS: Final = 10.0
# The most names of keys that missed that are remembered, to recognise a key that misses again.
_MOST_NAMES: Final = 4096


class CompiledAgain:
    """Counts for one directory. For one thread; :attr:`count` is for any."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        # Misses that were reported before were counted by the daemon that ran then, or by none.
        self._seen_ns = time.time_ns()
        self._look_due = 0.0
        self._names: dict[str, None] = {}
        #: Misses whose entry had gone, was not whole, or was not waited for.
        self.count = 0

    def tick(self) -> None:
        """Count what programs reported since, if it is due."""
        if time.monotonic() < self._look_due:
            return
        self._look_due = time.monotonic() + _BETWEEN_LOOKS_SECONDS
        new = [miss for miss in read_misses(self._layout) if self._seen_ns < miss.time_ns <= time.time_ns()]
        self._seen_ns = max((miss.time_ns for miss in new), default=self._seen_ns)
        self.count += sum(bool(miss.replaced) or miss.name in self._names for miss in new)
        self._names |= dict.fromkeys(miss.name for miss in new)
        for name in list(self._names)[:-_MOST_NAMES]:
            del self._names[name]

# SPDX-License-Identifier: Apache-2.0
"""S3-FIFO: a cache that keeps what is asked for again, by three queues, and knows no cost.

By its description (Yang, Zhang, Qiu, Yue, Rashmi: FIFO Queues are All You Need for Cache Eviction, SOSP 2023), with
sizes in bytes: what is new waits in a small queue of a tenth, what was hit there moves to the main one, where a hit is
another round, and names of what left the small queue are remembered as ghosts.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_SMALL_SHARE: Final = 0.1
_MOST_HITS: Final = 3


class S3Fifo:
    """A cache of names and sizes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._small: OrderedDict[str, int] = OrderedDict()
        self._main: OrderedDict[str, int] = OrderedDict()
        self._ghosts: OrderedDict[str, int] = OrderedDict()
        self._hits: dict[str, int] = {}
        self._small_bytes = self._main_bytes = self._ghost_bytes = 0
        self.evictions = 0

    def get(self, name: str) -> bool:
        """Returns whether there is an entry, and counts the hit."""
        if name not in self._hits:
            return False
        self._hits[name] = min(_MOST_HITS, self._hits[name] + 1)
        return True

    def put(self, name: str, size_bytes: int) -> None:
        """Store an entry that is not there."""
        if size_bytes > self._limit_bytes:
            return
        while self._small_bytes + self._main_bytes + size_bytes > self._limit_bytes:
            if self._small_bytes > self._limit_bytes * _SMALL_SHARE or not self._main:
                self._leave_small()
            else:
                self._leave_main()
        self._hits[name] = 0
        if name in self._ghosts:
            self._ghost_bytes -= self._ghosts.pop(name)
            self._main[name] = size_bytes
            self._main_bytes += size_bytes
        else:
            self._small[name] = size_bytes
            self._small_bytes += size_bytes

    def _leave_small(self) -> None:
        name, size_bytes = self._small.popitem(last=False)
        self._small_bytes -= size_bytes
        if self._hits[name] > 0:
            self._hits[name] = 0
            self._main[name] = size_bytes
            self._main_bytes += size_bytes
            return
        del self._hits[name]
        self.evictions += 1
        self._ghosts[name] = size_bytes
        self._ghost_bytes += size_bytes
        while self._ghost_bytes > self._limit_bytes * (1 - _SMALL_SHARE):
            self._ghost_bytes -= self._ghosts.popitem(last=False)[1]

    def _leave_main(self) -> None:
        name, size_bytes = self._main.popitem(last=False)
        if self._hits[name] > 0:
            self._hits[name] -= 1
            self._main[name] = size_bytes
            return
        self._main_bytes -= size_bytes
        del self._hits[name]
        self.evictions += 1

"""Last uses that are not now: entries that are looked at, and entries that come with a last use of their own.

Each stands in for the directory's own :class:`Recency`. Keeps the order of uses as it was: packing is not a use of an
entry, and what is unpacked was last used where it was packed.
"""

from __future__ import annotations

import os

from lockcache.filestream.disk import Recency


class Unused(Recency):
    """What is read was not used."""

    __slots__ = ()

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.touch = self._leave

    def _leave(self, fd: int, _: os.stat_result | None = None) -> None:
        pass


class StatedUse(Recency):
    """What is written was last used at :attr:`last_use_ns`."""

    __slots__ = ("last_use_ns",)

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.last_use_ns = 0
        self.touch = self._state

    def _state(self, fd: int, _: os.stat_result | None = None) -> None:
        try:
            os.utime(fd, ns=(self.last_use_ns, self.last_use_ns))
        except OSError:
            self.failures += 1

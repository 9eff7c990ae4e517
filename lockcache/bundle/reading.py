# SPDX-License-Identifier: Apache-2.0
"""Reading entries of a directory without using them.

Keeps invariant 1 (a hit is whole) as any reader does; in a directory that a group shares, where others may put a
symlink in a folder's place at any time, through folders that it opens on the way to each entry.
"""

from __future__ import annotations

import os

from lockcache.filestream.bundle import SeedSource
from lockcache.filestream.disk import Recency
from lockcache.filestream.entry import reader_of
from lockcache.lowlevel import KeyRing, Layout

__all__ = ["Onlooker", "StatedUse"]


class Onlooker:
    """Loads entries as a program would, and leaves when they were last used as it is."""

    def __init__(self, layout: Layout, keys: KeyRing | None = None, *, is_seeded: bool = False) -> None:
        """``is_seeded``: also those that only the seed of the directory has, if there is one."""
        self._reader = reader_of(layout)(layout, Unused(layout.root), keys)
        self._seed = SeedSource(layout, self._reader, keys) if is_seeded else None

    @property
    def seeded_names(self) -> list[str]:
        """The names of the entries that only the seed has, in order."""
        return [] if self._seed is None else sorted(self._seed.names())

    @property
    def damaged(self) -> int:
        """Entries so far that were not what any writer stored."""
        return self._reader.corrupt_entries

    @property
    def refused(self) -> int:
        """Entries so far with a signature that cannot be verified here, or without the one that ``keys`` want."""
        return self._reader.refused_entries

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns payload and record (empty if it has none), verified; ``None`` for a missing or damaged entry."""
        loaded = self._reader.load(name)
        return self._seed.load(name) if loaded is None and self._seed is not None else loaded


class Unused(Recency):
    """Recency for a reader that states no uses."""

    __slots__ = ()

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.touch = self._leave

    def _leave(self, fd: int, _: os.stat_result | None = None) -> None:
        pass


class StatedUse(Recency):
    """Recency for a writer whose entries were last used at :attr:`last_use_ns`."""

    __slots__ = ("last_use_ns",)

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.last_use_ns = 0
        self.touch = self.touch_new = self._state

    def _state(self, fd: int, _: os.stat_result | None = None) -> None:
        try:
            os.utime(fd, ns=(self.last_use_ns, self.last_use_ns))
        except OSError:
            self.failures += 1

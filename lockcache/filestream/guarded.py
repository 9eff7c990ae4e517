"""Reading where others may replace folders: a directory that a group shares.

Keeps the promise that no symlink below the root is followed where somebody else than its owner could plant one: two
looks more for each read (1.5 us), which a private directory does not need. Not promised: that nobody swaps a folder
between the look and the open. Who can do that can plant a file in the folder as well; what is read is verified all the
same, and a read changes nothing but times.
"""

from __future__ import annotations

from typing import Protocol

from lockcache.filestream.folders import refuse_symlink
from lockcache.filestream.layout import Layout
from lockcache.filestream.read import EntryReader

__all__ = ["GuardedReader", "Loader"]


class Loader(Protocol):
    """What reads an entry by its name."""

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Its payload, verified and marked as used, and its record; or ``None``."""


class GuardedReader:
    """Reads as ``reader`` does, after a look at the folders on the way."""

    __slots__ = ("_layout", "_reader")

    def __init__(self, layout: Layout, reader: EntryReader) -> None:
        self._layout = layout
        self._reader = reader

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """As :meth:`EntryReader.load`; a miss where a symlink stands for a folder."""
        layout = self._layout
        try:
            refuse_symlink(layout.entries)
            refuse_symlink(f"{layout.entries}/{name[:2]}")
        except OSError:
            self._reader.misses += 1
            return None
        return self._reader.load(name)

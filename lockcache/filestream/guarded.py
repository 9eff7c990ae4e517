"""Reading where others may replace folders: a directory that a group shares.

Keeps the promise that no symlink below the root is followed where somebody else than its owner could plant one: two
looks more for each read (4 us), which a private directory does not need. Not promised: that nobody swaps a folder
between the look and the open. Who can do that can plant a file in the folder as well; what is read is verified all the
same, and a read changes nothing but times.
"""

from __future__ import annotations

import os
import stat
from typing import Protocol

from lockcache.filestream.layout import Layout
from lockcache.filestream.read import EntryReader

__all__ = ["GuardedReader", "Loader"]


_lstat, _is_link = os.lstat, stat.S_ISLNK


class Loader(Protocol):
    """What reads an entry by its name."""

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Its payload, verified and marked as used, and its record; or ``None``."""


class GuardedReader:
    """Reads as ``reader`` does, after a look at the folders on the way."""

    __slots__ = ("_entries", "_load", "_reader")

    def __init__(self, layout: Layout, reader: EntryReader) -> None:
        self._entries = layout.entries
        self._reader = reader
        self._load = reader.load

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """As :meth:`EntryReader.load`; a miss where a symlink stands for a folder."""
        entries = self._entries
        try:
            # refuse_symlink, written out: two calls are 1 us.
            if not (_is_link(_lstat(entries).st_mode) or _is_link(_lstat(f"{entries}/{name[:2]}").st_mode)):
                return self._load(name)
        except OSError:  # no shard, no entry
            pass
        self._reader.misses += 1
        return None

"""Entries that a scrub goes through: those of a layout whose files say what they should be.

Of lockcache's layout here; of pyptx's it is :class:`lockcache.layouts.PyptxEntries`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from lockcache.filestream.repair import entry_names
from lockcache.lowlevel import CacheDirectory, Layout, Verdict, verify_in_steps


class Verifiable(Protocol):
    """The entries of one directory."""

    @property
    def layout(self) -> Layout:
        """Where the daemon's own files are."""

    def names(self, shard: int) -> list[str]:
        """Those whose names begin with these two hex digits, in order. Raises :class:`OSError`."""

    def verify(self, name: str) -> Generator[int, None, Verdict | None]:
        """The verdict on one, ``None`` if it is gone; what is corrupt is put out of the way.

        Yields the bytes that each step read. Raises :class:`OSError` for what says nothing of the entry.
        """


class Entries:
    """lockcache's own layout, and cuda.core's: corrupt ones go into quarantine."""

    def __init__(self, directory: CacheDirectory) -> None:
        self._directory = directory

    @property
    def layout(self) -> Layout:
        return self._directory.layout

    def names(self, shard: int) -> list[str]:
        return entry_names(self.layout, shard)

    def verify(self, name: str) -> Generator[int, None, Verdict | None]:
        return verify_in_steps(self._directory, name, repair=True)

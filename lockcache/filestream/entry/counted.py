"""Reads that count what they find for ``lockcache run``, in a process that it started."""

from __future__ import annotations

from lockcache.filestream.entry.reader import EntryReader, Loader

__all__ = ["CountedReads"]


class CountedReads:
    """Reads as ``own`` does, and counts what is found; ``reader`` has the counts."""

    __slots__ = ("_load", "_reader")

    def __init__(self, reader: EntryReader, own: Loader) -> None:
        self._reader = reader
        self._load = own.load

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Load like :meth:`.reader.Loader.load`."""
        loaded = self._load(name)
        if loaded is not None:
            self._reader.note_found(name, loaded)
        return loaded

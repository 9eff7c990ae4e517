# SPDX-License-Identifier: Apache-2.0
"""Reading a directory's seed: its own copy of a bundle, below its entries.

The seed is asked for what ``entries/`` lacks, a damaged entry included; :mod:`lockcache.filestream.seed_marks` hides
those of deleted entries. Keeps invariant 7 (never take the job down): whatever becomes of the seed, a read is a hit or
a miss.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Iterator
from typing import Final

from lockcache.filestream.accounting import has_entry
from lockcache.filestream.bundle.reader import BundleFile, RefusedEntryError
from lockcache.filestream.bundle_format import HIDDEN_AT, SLOT, Table
from lockcache.filestream.disk import READ, KeptDescriptor, Layout
from lockcache.filestream.entry import EntryReader, KeyRing
from lockcache.filestream.seed_marks import LOOK_SECONDS, WITHDRAWN

__all__ = ["SeedFile", "SeedSource", "SeededRecords"]

_log = logging.getLogger("lockcache")

_EMPTY: Final = bytes(SLOT.size)


class SeedFile(BundleFile):
    """The open seed of a directory."""

    _has_marks = True

    @property
    def is_withdrawn(self) -> bool:
        """Whether the file was replaced or removed: a lookup found the mark of that, or the file has no name."""
        return self._met_flag == WITHDRAWN or not os.fstat(self._fd).st_nlink

    def __init__(self, layout: Layout, keys: KeyRing | None = None) -> None:
        """Raises :class:`OSError`."""
        self._layout = layout
        super().__init__(layout.seed, keys)

    def _open(self) -> KeptDescriptor:
        file = KeptDescriptor()
        self._layout.reach.open(self.path, READ, file)
        return file

    def _refuse(self, status: os.stat_result) -> None:
        """Refuse what is not a file. The directory was checked, which decides about everything in it."""
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", self.path)

    def _is_whole(self, start: bytes, table: Table, end: bytes) -> bool:
        """Compare nothing: the table was compared when the seed was copied, and marks change it."""
        return True

    def is_at_its_path(self) -> bool:
        """Returns whether the open file is still the directory's: not where a file with a second name was replaced."""
        try:
            status = os.lstat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file.identity

    def record(self, name: bytes) -> tuple[bytes, int] | None:
        """Returns the record of an entry that it serves, unverified, and the length of its payload.

        Raises :class:`OSError`, and :class:`ValueError` for a place that is not in the file.
        """
        place = self.find(name)
        if place is None:
            return None
        start, middle, end = self._bounds(place)
        return bytes(self._read(start, middle - start)), end - middle

    def served(self) -> list[bytes]:
        """Returns the names of the entries that it serves. Raises :class:`OSError`."""
        return list(self.each_served())

    def each_served(self) -> Iterator[bytes]:
        """Yields the names of :meth:`served`, a part of the table in memory at a time. Raises :class:`OSError`."""
        for part in self._slots_of(Table(self._table, self._slots, self.entries)):
            for at in range(0, len(part), SLOT.size):
                if not part[at + HIDDEN_AT] and part[at : at + SLOT.size] != _EMPTY:
                    yield bytes(part[at : at + 32])


class SeededRecords:
    """The records of the entries that only the seed of a directory has, for those who inspect it."""

    def __init__(self, layout: Layout) -> None:
        """Raises :class:`OSError`, also for a seed that is damaged."""
        self._layout = layout
        self._seed = SeedFile(layout)
        if self._seed.damage:
            self.close()
            raise OSError(errno.EINVAL, self._seed.damage, layout.seed)

    def names(self) -> Iterator[str]:
        """Yields the names of the entries, in no order. Raises :class:`OSError`."""
        for name in map(bytes.hex, self._seed.each_served()):
            if not has_entry(self._layout, name):
                yield name

    def record(self, name: str) -> tuple[bytes, int] | None:
        """Returns an entry's record, unverified, and the length of its payload; ``None`` where it cannot be read."""
        try:
            return self._seed.record(bytes.fromhex(name))
        except (OSError, ValueError):
            return None  # removed or cut since, or its place is not in the file: nothing to show

    def close(self) -> None:
        """Close the seed."""
        self._seed.close()


class SeedSource:
    """A directory's seed, for what its entries lack. Damage and refusals are counted in ``counts``."""

    __slots__ = ("_counts", "_keys", "_layout", "_looked_at", "_seed")

    def __init__(self, layout: Layout, counts: EntryReader, keys: KeyRing | None) -> None:
        self._layout = layout
        self._counts = counts
        self._keys = keys
        self._seed: SeedFile | None = None
        self._looked_at = 0.0

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns payload, verified, and record of the seed's entry; ``None`` for a miss."""
        try:
            seed = self._current()
            loaded = seed.load(bytes.fromhex(name))
            if loaded is None and seed.is_withdrawn:  # for another one, or for none
                self.close()
                loaded = self._opened().load(bytes.fromhex(name))
            return loaded
        except MemoryError:
            _log.debug("%s: an entry of the seed does not fit into memory", self._layout.root)
        except RefusedEntryError:
            self._counts.refused_entries += 1
        except ValueError:
            self._counts.note_corrupt(f"entry {name} of {self._layout.seed}")
        except OSError as error:
            # Often: it was taken away, by somebody else's clear.
            if error.errno == errno.EBADF:
                self.close()
            _log.debug("%s: the seed cannot be read: %s", self._layout.root, error)
        return None

    def names(self) -> list[str]:
        """Returns the names of the entries that only the seed has, in no order. Empty where it cannot be read."""
        try:
            if self._seed is not None and self._seed.is_withdrawn:
                self.close()
            served = [name.hex() for name in self._current().served()]
        except (OSError, MemoryError):
            return []
        return [name for name in served if not has_entry(self._layout, name)]

    def close(self) -> None:
        """Close the seed. The next read opens it again."""
        seed, self._seed = self._seed, None
        if seed is not None:
            seed.close()

    def _current(self) -> SeedFile:
        seed, now = self._seed, time.monotonic()
        if seed is not None and now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            if not seed.is_at_its_path():
                self.close()
                seed = None
        return seed or self._opened()

    def _opened(self) -> SeedFile:
        self._looked_at = time.monotonic()
        self._seed = seed = SeedFile(self._layout, self._keys)
        return seed

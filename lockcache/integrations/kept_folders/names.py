# SPDX-License-Identifier: Apache-2.0
"""Names of the stored folders: a list in entries of the cache itself, since a cache is asked by key.

The list is made of entries with numbers, each of which holds some names and is never replaced. So it is read through a
seed and a server as any entry is, and two processes that add at once do not lose each other's names: who adds takes the
turn of the first number that is free. Eviction may make holes, which are filled again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Final

from lockcache.composition import FileStreamProgramCache
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.disk import entry_name
from lockcache.metadata import COMPILE_COST
from lockcache.resource import Entry
from lockcache.single_flight import Turn

__all__ = ["StoredNames", "is_stored", "uncounted"]

# A program that compiles now and then adds one name at a time.
_MOST_ENTRIES: Final = 100_000
_MOST_NAMES: Final = 100_000
# As many entries in a row may have been evicted.
_LONGEST_HOLE: Final = 8
_LABEL: Final = "(names of the folders)"


class StoredNames:
    """The names under one key."""

    def __init__(self, cache: FileStreamProgramCache, key: str, namespace: str, is_name: Callable[[str], bool]) -> None:
        self._cache = cache
        self._key = key
        self._metadata = {"kind": "names", "namespace": namespace, COMPILE_COST: 0}
        self._is_name = is_name
        #: The names that are listed, the earliest first.
        self.known: dict[str, None] = {}
        #: Whether a folder of these appeared by a rename.
        self.has_moved = False
        self._next = 0  # those below were taken when this process last added names

    def read(self) -> None:
        """Read the list, or read it again."""
        missing = 0
        with uncounted(self._cache):
            for number in range(_MOST_ENTRIES):
                entry = self._cache.get_entry(self._numbered(number))
                missing = 0 if entry is not None else missing + 1
                self._take(entry)
                if missing > _LONGEST_HOLE:
                    return

    def add(self, names: list[str], *, was_moved: bool) -> bool:
        """Add what is not listed. Returns whether all of it is listed now."""
        self.has_moved = self.has_moved or (was_moved and bool(names))
        new = [name for name in names if name not in self.known]
        code = json.dumps(new).encode()
        with uncounted(self._cache):
            for number in range(self._next, _MOST_ENTRIES) if new else ():
                found = self._cache.begin(self._numbered(number), label=_LABEL)
                if isinstance(found, Turn):
                    with found as turn:
                        turn.store(Entry(code, {**self._metadata, "moved": was_moved}))
                    if not is_stored(self._cache, self._numbered(number)):
                        return False
                    self._next = number + 1
                    self.known.update(dict.fromkeys(new))
                    return True
                self._take(found)
        return not new

    def _numbered(self, number: int) -> str:
        return f"{self._key}//{number}"

    def _take(self, entry: Entry | None) -> None:
        names: object = None
        with contextlib.suppress(ValueError, RecursionError):
            names = None if entry is None else json.loads(entry.code)
        if entry is not None and entry.metadata.get("moved") is True:
            self.has_moved = True
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and self._is_name(name) and len(self.known) < _MOST_NAMES:
                self.known[name] = None


@contextlib.contextmanager
def uncounted(cache: FileStreamProgramCache) -> Iterator[None]:
    """A block whose look-ups and writes count nowhere: no program asked for them."""
    reader, counts = cache._reader, cache._counts
    hits, misses, puts = reader.hits, reader.misses, counts["puts"]
    try:
        yield
    finally:
        cache._recount(hits=hits - reader.hits, misses=misses - reader.misses, puts=puts - counts["puts"])


def is_stored(cache: FileStreamProgramCache, key: str) -> bool:
    """Returns whether the directory itself has an entry, without a read, and without counting a hit or a miss."""
    return has_entry(cache._directory.layout, entry_name(key.encode()))

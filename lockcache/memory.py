# SPDX-License-Identifier: Apache-2.0
"""InMemoryProgramCache: entries in this process only, least recently used first out.

Keeps invariants 1 (a hit is whole), 2 (last write wins) and 3 (hard cap) for one process: every operation is one
critical section of one lock, so none can be seen half done. Relied on as the fast tier in front of a shared one. Not
promised: anything across processes; a forked child has its own copy from the moment of the fork.

A signal handler may use the cache during an operation, in the same thread: the lock is reentrant, and an
operation that was disturbed counts the bytes again when it is done.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from lockcache import serving
from lockcache.arguments import is_disabled
from lockcache.fork import after_fork_in_child
from lockcache.resource import (
    CacheStats,
    Entry,
    ProgramCacheResource,
    coerce_entry,
    coerce_key,
    coerce_max_size_bytes,
    coerce_value,
    join_metadata,
    split_metadata,
)
from lockcache.serving import unreported, watch

__all__ = ["InMemoryProgramCache"]

# (code, encoded metadata, compile cost in ns)
_Stored = tuple[bytes, bytes, int]


class InMemoryProgramCache(ProgramCacheResource):
    """A thread-safe LRU cache of compiled programs in memory.

    ``max_size_bytes``, a number or ``"2G"``, bounds the bytes of code (metadata, which is small, is not counted);
    ``None`` means no bound.
    Reading an entry makes it the most recently used. An entry larger than the cap is not stored and evicts nothing, and
    an older value under its key is removed. Under ``$LOCKCACHE_DISABLE`` nothing is stored.
    """

    def __init__(self, *, max_size_bytes: int | str | None = None) -> None:
        serving.obey_variables()
        self._max_size_bytes = coerce_max_size_bytes(max_size_bytes)
        self._is_off = is_disabled()
        self._lock = threading.RLock()
        self._changes = 0
        after_fork_in_child(self)
        self._entries: OrderedDict[bytes, _Stored] = OrderedDict()
        self._bytes = 0
        self._counts = dict.fromkeys(
            ("hits", "misses", "puts", "evictions", "dropped_writes", "waits", "uncacheable"), 0
        )

    def __getitem__(self, key: bytes | str) -> bytes:
        stored = self._read(coerce_key(key))
        if stored is None:
            raise KeyError(key)
        return stored[0]

    def get_entry(self, key: bytes | str) -> Entry | None:
        stored = self._read(coerce_key(key))
        return None if stored is None else Entry(stored[0], join_metadata(stored[1], stored[2]))

    def __setitem__(self, key: bytes | str, value: object) -> None:
        name = coerce_key(key)
        self._write(name, split_metadata(*coerce_value(value)))
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        name = coerce_key(key)
        self._write(name, coerce_entry(entry))
        if watch.is_on and not unreported.depth:
            serving.stored(self, name)

    def __delitem__(self, key: bytes | str) -> None:
        name = coerce_key(key)
        with self._lock:
            changes = self._changes = self._changes + 1
            is_removed = self._remove_locked(name)
            self._settle_locked(changes)
        if not is_removed:
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            changes = self._changes = self._changes + 1
            self._entries.clear()
            self._bytes = 0
            self._settle_locked(changes)

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(**self._counts, bytes=self._bytes, entries=len(self._entries))

    def _recount(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def _read(self, name: bytes) -> _Stored | None:
        with self._lock:
            stored = self._entries.get(name)
            if stored is None:
                self._counts["misses"] += 1
                return None
            try:
                self._entries.move_to_end(name)
            except KeyError:
                pass  # a signal handler removed it just now
            self._counts["hits"] += 1
            return stored

    def _write(self, name: bytes, stored: _Stored) -> None:
        size = len(stored[0])
        with self._lock:
            changes = self._changes = self._changes + 1
            self._remove_locked(name)
            if self._is_off or (self._max_size_bytes is not None and size > self._max_size_bytes):
                self._counts["dropped_writes"] += 1
                self._settle_locked(changes)
                return
            self._entries[name] = stored
            self._bytes += size
            self._counts["puts"] += 1
            self._evict_locked()
            self._settle_locked(changes)

    def _remove_locked(self, name: bytes) -> bool:
        """Requires: the lock."""
        stored = self._entries.pop(name, None)
        if stored is None:
            return False
        self._bytes -= len(stored[0])
        return True

    def _evict_locked(self) -> None:
        """Requires: the lock."""
        while self._max_size_bytes is not None and self._bytes > self._max_size_bytes and self._entries:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= len(oldest[0])
            self._counts["evictions"] += 1

    def _settle_locked(self, changes: int) -> None:
        """Count the bytes again if a signal handler changed entries since this thread did. Requires: the lock."""
        while self._changes != changes:
            changes = self._changes
            # A list, made in one step: another handler may come while it is gone through.
            self._bytes = sum(len(stored[0]) for stored in list(self._entries.values()))
            self._evict_locked()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        # A thread that the child does not have may have been between an entry and its bytes.
        self._bytes = sum(len(stored[0]) for stored in self._entries.values())

    def __reduce__(self) -> Any:
        raise TypeError("an InMemoryProgramCache belongs to its process; share a FileStreamProgramCache instead")

# SPDX-License-Identifier: Apache-2.0
"""Statistics: the counters of one cache object, of whatever back end."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheStats"]


@dataclass(frozen=True)
class CacheStats:
    """The counts of one cache object since it was made, and the size of the store now.

    The counters belong to this object in this process; ``bytes`` and ``entries`` to the store, which others may share.
    """

    hits: int = 0
    misses: int = 0
    puts: int = 0
    #: Entries that this object removed to make room.
    evictions: int = 0
    #: Writes that were given up (disk full, lock not free in time, larger than the cap). None of them raises.
    dropped_writes: int = 0
    #: Reads that found bytes which no writer had stored under that key. Each was a miss.
    corrupt_entries: int = 0
    #: Hits among ``hits`` on entries that carry no record to verify (written by cuda.core's own cache).
    unverified_hits: int = 0
    bytes: int = 0
    entries: int = 0
    #: Misses on entries that are signed where there is no key for them, or not signed where there is one.
    refused_entries: int = 0
    #: Hits among ``hits`` that were served after waiting for another caller, who computed the entry.
    waits: int = 0
    #: Compilations through ``lockcache.cuda`` that were returned and not stored, since they cannot be cached.
    uncacheable: int = 0

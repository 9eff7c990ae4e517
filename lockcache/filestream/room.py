"""Making room for a reserved write: give back what the dead hold, evict, or give way.

Keeps invariant 3 for writers: a write goes on only after it has seen the sum of everything accounted for, its own
reservation included, at or under the cap. Keeps invariant 5 without a daemon: what killed writers left reserved is
reclaimed before anything is evicted for it. Decides how writers whose reservations together exceed the cap get past
each other without hanging: see :func:`make_room`.
"""

from __future__ import annotations

from typing import Final

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.eviction import Evicted, evict
from lockcache.filestream.recovery import reap, recount_drifted
from lockcache.filestream.usage import UsagePage

__all__ = ["make_room"]

# Each round evicts what it can; more than one is only needed while others fill what was freed, or hold shard locks.
_ROUNDS: Final = 8

_SUSPICIOUS_SHARE: Final = 8


def make_room(directory: CacheDirectory, usage: UsagePage, limit_bytes: int) -> tuple[bool, Evicted]:
    """Evict until all that is accounted for is at most ``limit_bytes``. Whether it is, and what was evicted.

    Requires: the caller's reservation stands in ``usage``, and no lock is held. ``False`` means that what is left
    belongs to other writers' reservations: the caller gives its own back, queues and comes again, or all of them would
    wait for ever.
    """
    done = Evicted()
    if usage.total_bytes() <= limit_bytes:
        return True, done
    reap(directory)
    # Writers in flight, or a cap just lowered, account for some excess. This much may also be damage or drift, and to
    # look first costs less than to evict for it.
    if usage.total_bytes() - limit_bytes > limit_bytes // _SUSPICIOUS_SHARE:
        recount_drifted(directory)
    for _ in range(_ROUNDS):
        if usage.total_bytes() <= limit_bytes:
            return True, done
        evicted = evict(directory, limit_bytes)
        done += evicted
        # Nothing to evict: reservations, or a drift, which would otherwise keep a small cache shut for ever.
        if not evicted.entries and not recount_drifted(directory):
            break
    return usage.total_bytes() <= limit_bytes, done

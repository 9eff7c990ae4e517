"""Eviction: which entries go when room is needed, and removing them.

Keeps invariant 3 (room is made before bytes are written, and no more than asked for plus one small batch, however
many processes evict at once: all of them stop at the same sum of one shared page) and invariant 4 (it holds one shard
lock at a time, passes over busy ones, and looks again under the lock before it removes).

Up to ``SAMPLE_ENTRIES`` entries it is exact LRU; in larger caches the oldest of a sample of whole shards, so that the
cost of a put does not grow with the cache.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.goal import Goal
from lockcache.filestream.layout import SHARDS, Layout
from lockcache.filestream.recency import last_use_ns
from lockcache.filestream.scan import Found, scan_shard
from lockcache.filestream.usage import UsagePage
from lockcache.filestream.write import remove_locked

__all__ = [
    "SAMPLE_ENTRIES",
    "Evicted",
    "all_entries",
    "choose_victims",
    "evict",
    "remove_victims",
    "sample_entries",
    "sweep",
]

#: How many entries a writer looks at when it must evict: 12 ms for 4,096, shared by the 256 and more puts that the
#: batch makes room for.
SAMPLE_ENTRIES: Final = 4096

# Beyond what is needed, a sixteenth of the sample: what keeps the next puts from looking again.
_BATCH_DIVISOR: Final = 16

# Entries that are looked at between two cuts to the victims so far: a sweep of a million entries then needs the memory
# of its victims and of these (20 MB), not of all (300 MB), and no sort takes longer than a signal may wait.
_CHUNK_ENTRIES: Final = 65536

# An unlink is mostly waiting: for the journal, for a file server, on a busy machine for a core to wake up on. 3,000 on
# ext4 with all cores busy: 2.5 to 3.6 s by one thread, 0.3 s by eight; with idle cores 0.3 and 0.2 s.
_SWEEP_THREADS: Final = 8

# Victims removed under one hold of a shard lock: half a millisecond at most, also on a slow disk.
_REMOVALS_PER_LOCK: Final = 32


@dataclass(frozen=True)
class Evicted:
    """What an eviction removed."""

    entries: int = 0
    bytes: int = 0

    def __add__(self, other: Evicted) -> Evicted:
        return Evicted(self.entries + other.entries, self.bytes + other.bytes)


def evict(directory: CacheDirectory, limit_bytes: int) -> Evicted:
    """Remove least recently used entries until all that is accounted for is at most ``limit_bytes``, plus a batch.

    May remove less: entries in busy shards stay, and what is reserved by others' writes cannot be evicted.
    """
    usage = directory.usage()
    sample = sample_entries(directory, SAMPLE_ENTRIES)
    needed = usage.total_bytes() - limit_bytes
    if needed <= 0:
        return Evicted()  # another process made room while we looked
    victims, batch_bytes = choose_victims(sample, needed, len(sample) // _BATCH_DIVISOR)
    return remove_victims(directory, victims, Goal(limit_bytes - batch_bytes))


def sweep(directory: CacheDirectory, goal: Goal, should_stop: Callable[[], bool]) -> Evicted:
    """As :func:`evict`, but exact LRU however many entries there are, and no batch: for the daemon, who has the time.

    ``should_stop`` is asked between shards while looking and between lock holds while removing; after it said so once
    it must go on saying so. What was removed by then is accounted for like all else.
    """
    usage = directory.usage()
    surplus = goal.surplus(usage.total())
    if surplus == (0, 0):
        return Evicted()
    victims, _ = choose_victims(all_entries(directory.layout, should_stop), surplus.bytes, 0, surplus.entries)
    # Others may have made room meanwhile: keep the younger of the victims, not those in the last shards.
    surplus = goal.surplus(usage.total())
    victims, _ = choose_victims(victims, surplus.bytes, 0, surplus.entries)
    return remove_victims(directory, victims, goal, should_stop=should_stop, threads=_SWEEP_THREADS)


def all_entries(layout: Layout, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Found]:
    """Every entry, shard by shard, also those that the accounting does not know of. Ends early if told to."""
    for shard in range(SHARDS):
        if should_stop():
            return
        yield from scan_shard(layout, shard)


def sample_entries(directory: CacheDirectory, at_least: int) -> list[Found]:
    """Entries of whole shards, from a random one on, until there are ``at_least``."""
    slots = directory.usage().slots()
    start = random.randrange(SHARDS)
    sample: list[Found] = []
    for shard in (*range(start, SHARDS), *range(start)):
        if slots[shard] != (0, 0):
            sample.extend(scan_shard(directory.layout, shard))
        if len(sample) >= at_least:
            break
    return sample


def choose_victims(
    sample: Iterable[Found], needed_bytes: int, batch_entries: int, needed_entries: int = 0
) -> tuple[list[Found], int]:
    """The least recently used: ``needed_entries`` that add up to ``needed_bytes``, then ``batch_entries`` more.

    Returns them, oldest first, and the bytes of the batch.
    """
    found = iter(sample)
    oldest: list[Found] = []
    count = 0
    while chunk := list(islice(found, _CHUNK_ENTRIES)):
        oldest = sorted(oldest + chunk)
        count = _count_until(oldest, needed_bytes, needed_entries)
        del oldest[count + batch_entries :]
    return oldest, sum(entry.size_bytes for entry in oldest[count:])


def _count_until(entries: list[Found], needed_bytes: int, needed_entries: int) -> int:
    """How many entries, from the first on, add up to ``needed_bytes``; at least ``needed_entries``."""
    freed = 0
    for count, entry in enumerate(entries):
        if freed >= needed_bytes and count >= needed_entries:
            return count
        freed += entry.size_bytes
    return len(entries)


def remove_victims(
    directory: CacheDirectory,
    victims: list[Found],
    goal: Goal | None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    threads: int = 1,
) -> Evicted:
    """Remove ``victims`` that nobody used since they were chosen, until ``goal`` is met; ``None``: all of them.

    ``should_stop`` is asked between lock holds. With more ``threads`` than one they work side by side, each on a shard
    of its own: each holds one lock and waits for none.
    """
    usage = directory.usage()

    def remove(in_shard: list[Found]) -> Evicted:
        done = Evicted()
        for start in range(0, len(in_shard), _REMOVALS_PER_LOCK):
            if (goal is not None and goal.is_met(usage.total())) or should_stop():
                break
            done += _remove_from_shard(directory, usage, in_shard[start : start + _REMOVALS_PER_LOCK])
        return done

    if threads == 1:
        return sum(map(remove, _by_shard(victims)), Evicted())
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that only the daemon pays

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(remove, _by_shard(victims)), Evicted())


def _by_shard(victims: list[Found]) -> Iterable[list[Found]]:
    """Victims of one shard each, oldest first."""
    for _, in_shard in groupby(sorted(victims, key=lambda found: found.name[:2]), key=lambda found: found.name[:2]):
        yield list(in_shard)


def _remove_from_shard(directory: CacheDirectory, usage: UsagePage, victims: list[Found]) -> Evicted:
    layout, shard = directory.layout, int(victims[0].name[:2], 16)
    lock = directory.locks[shard]
    try:
        if not lock.try_acquire():
            return Evicted()
    except OSError:
        return Evicted()  # no inode or descriptor left for a lock file that is not there yet: as good as busy
    try:
        has_records = os.path.exists(layout.record_shard(shard))
        done = Evicted()
        for victim in victims:
            if _is_unchanged(layout.entry(victim.name), victim) and remove_locked(
                layout, usage, victim.name, has_records
            ):
                done += Evicted(1, victim.size_bytes)
        return done
    finally:
        lock.release()


def _is_unchanged(path: str, victim: Found) -> bool:
    """The second look: what stands there is what was chosen, and nobody used it since."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return status.st_ino == victim.inode and last_use_ns(status) == victim.last_use_ns

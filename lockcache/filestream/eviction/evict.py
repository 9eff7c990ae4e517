# SPDX-License-Identifier: Apache-2.0
"""Eviction: chooses and removes entries when room is needed.

Keeps invariant 3 (hard cap: room is made before bytes are written, and no more than asked for plus one small batch,
however many processes evict at once: all of them stop at the same sum of one shared page) and invariant 4 (readers
never wait: it holds one shard lock at a time, passes over busy ones, and looks again under the lock before it
removes).

Up to ``SAMPLE_ENTRIES`` entries the choice is exact; in larger caches it is made in a sample of whole shards, so that
the cost of a put does not grow with the cache. First to go are the entries that are worth least (:mod:`.value`), or the
least recently used ones.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final
from weakref import WeakKeyDictionary

from lockcache.filestream.accounting import (
    ANY_TIME_NS,
    FILE_BYTES,
    UNKNOWN,
    Found,
    ShardFolders,
    StatePage,
    Worth,
    bytes_in,
    decode_head,
    sums_in,
)
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import SHARDS, Layout, read_small
from lockcache.filestream.entry import Prices
from lockcache.filestream.eviction.choose import BATCH_SHARE, Goal, Need, Oldest, first_enough
from lockcache.filestream.eviction.pins import protected, unpinned
from lockcache.filestream.eviction.remove import Evicted, remove_empty_folders, remove_orphan_views, remove_victims
from lockcache.filestream.eviction.value import Ranked, rank
from lockcache.filestream.policy import Policy, Priority
from lockcache.filestream.repair import empty_quarantine, trim_quarantine

#: How many entries a writer inspects when it must evict: 12 ms for 4,096, shared by the 256 and more puts that the
#: batch makes room for. By value it takes 14 ms more where all records have to be read, because no eviction has yet.
SAMPLE_ENTRIES: Final = 4096

# An unlink mostly waits: for the journal, for a file server, or on a busy machine for a core. 3,000 on ext4 with all
# cores busy: 2.5 to 3.6 s by one thread, 0.3 s by eight; with idle cores 0.3 and 0.2 s.
_SWEEP_THREADS: Final = 8

# A sweep by value reads the records of so many entries; if there are more, of the least recently used, so many times
# what has to go. Ranking one by its record costs 5 us, and 300 bytes while it lasts: for 100,000 victims of a million
# entries 1.5 s and 100 MB, not 5 s and 300 MB. Simulated (sweeps of a tenth, costs and sizes that differ widely), this
# saves three quarters of what looking at all would beyond last use, twice as much as has to go 60 %.
_PRICED_ENTRIES: Final = 262_144
_PRICED_FOR_EACH_NEEDED: Final = 3

# Entries are spread evenly over the shards, so the oldest tenth of a few shards with 4,000 entries in all tells when
# the oldest tenth of all was used, to a twentieth. A fifth more is looked at; everything, if that was too little.
_GUESSED_FROM_SHARDS: Final = 8
_GUESSED_FROM_ENTRIES: Final = 4000
_GUESSED_MORE: Final = 1.2

# What was read in records is stated for the next evictions if it was one record of so many entries.
_LEARN_AT: Final = 16

_name = attrgetter("name")

# The batch that the last eviction of this process spared, of each small cache: :func:`_evict_spared`.
_spared: Final[WeakKeyDictionary[CacheDirectory, Ranked]] = WeakKeyDictionary()
_NONE: Final = Ranked([])


def evict_to_limit(
    directory: CacheDirectory,
    limit_bytes: int,
    *,
    ahead_bytes: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    usage: StatePage | None = None,
) -> Evicted:
    """Remove entries until all that is accounted for is at most ``limit_bytes``; then a batch of ``ahead_bytes``.

    The batch is at least a sixteenth of the sampled entries, if these are 128 or more; of fewer, it goes first the next
    time. May remove less: entries in busy shards stay, reservations of other writes cannot be evicted, and
    ``should_stop`` is called as by :func:`sweep`. ``usage``: the page, of a caller that has just asked whether it is in
    force. Raises :class:`OSError` where the disk gives no answer; what was removed by then is accounted for.
    """
    usage, layout = usage or directory.usage(), directory.layout
    if os.access(layout.quarantine, os.F_OK, effective_ids=True):
        trim_quarantine(directory, limit_bytes)
    if os.access(layout.views, os.F_OK, effective_ids=True):
        remove_orphan_views(directory)
    done, spared, in_use = Evicted(), _spared.pop(directory, _NONE), set[str]()
    if spared.entries:
        done = _evict_spared(directory, usage, limit_bytes - ahead_bytes, spared, should_stop)
        if usage.total_bytes() <= limit_bytes:
            return done
    image = usage.whole()
    try:
        sample = sample_entries(layout, sums_in(image).entries, SAMPLE_ENTRIES, should_stop)
    except _StoppedError:
        return done
    if os.access(layout.pins, os.F_OK, effective_ids=True):
        sample = [*unpinned(layout, sample, directory.policy.stated_in(image).limit_bytes)]
    if not sample:
        empty_quarantine(directory)  # it counts too, and an entry of nearly the whole cap must find room
        remove_empty_folders(directory)
    # Not positive: another process made room while we looked.
    while (needed := bytes_in(image := usage.whole(FILE_BYTES)) - limit_bytes) > 0:
        ranked = _ranked(layout, image, sample, directory.policy.stated_in(image).policy.priority)
        need = Need(needed + ahead_bytes, batch_entries=len(sample) // BATCH_SHARE)
        victims, batch_bytes, later = first_enough(ranked.entries, need)
        _spared[directory] = ranked.spared(len(victims), len(later)) if later else _NONE
        goal = Goal(limit_bytes - ahead_bytes - batch_bytes)
        before, gone = len(in_use), set[str]()
        done += remove_victims(directory, victims, goal, should_stop=should_stop, in_use=in_use, gone=gone, usage=usage)
        _note_evicted(directory, usage, ranked._replace(entries=victims), gone)
        if len(in_use) == before:
            break
        passed = in_use.union(victim.name for victim in victims)  # those whose views are in use stayed: others go
        sample = [found for found in sample if found.name not in passed]
    return done


def _evict_spared(
    directory: CacheDirectory, usage: StatePage, limit_bytes: int, spared: Ranked, should_stop: Callable[[], bool]
) -> Evicted:
    """Evict what the last eviction of this process spared, so that a small cache is looked at once for several writes.

    Only what is as it was then: that is still the least recently used, or worth the least (:meth:`.Ranked.spared`).
    Nothing where another order is in force by now, or some of it was pinned.
    """
    image, found, layout = usage.whole(), spared.entries, directory.layout
    policy = directory.policy.stated_in(image)
    is_by_value, may_be_pinned = policy.policy.priority != "lru", os.access(layout.pins, os.F_OK, effective_ids=True)
    if is_by_value != bool(spared.values) or (
        may_be_pinned and [*unpinned(layout, found, policy.limit_bytes)] != found
    ):
        return Evicted()
    victims = first_enough(found, Need(bytes_in(image) - limit_bytes)).victims
    _spared[directory] = Ranked(found[len(victims) :], spared.values[len(victims) :])
    gone = set[str]()
    done = remove_victims(directory, victims, Goal(limit_bytes), should_stop=should_stop, gone=gone, usage=usage)
    _note_evicted(directory, usage, spared._replace(entries=victims), gone)
    return done


def _ranked(
    layout: Layout, image: bytes, found: Sequence[Found], priority: Priority, between: Callable[[], object] = bool
) -> Ranked:
    """Returns entries in the order of eviction.

    ``image``: of the page, with what stands behind it. ``between`` is called for each record, and may raise.
    """
    if priority == "lru":
        return Ranked(sorted(found))
    worth = Worth(image)
    parts, hits, costs = worth.of_all(map(_name, found), (entry.inode for entry in found))
    cost_ns, unknown = Prices(layout).cost_ns, [place for place, cost in enumerate(costs) if cost == UNKNOWN]
    for place in unknown:
        between()
        costs[place] = cost_ns(found[place])
    ranked = rank(found, costs, hits, worth.ages, time.time_ns())
    # Stated once for a batch, not by each eviction of a small cache.
    is_much = len(unknown) * _LEARN_AT > len(found)
    return ranked._replace(learned=dict(zip(parts, costs, strict=True))) if is_much else ranked


def _note_evicted(directory: CacheDirectory, usage: StatePage, victims: Ranked, gone: set[str]) -> None:
    """Raise the directory's age to the values of what went, halve the counts of its hits, and state what was learned.

    Not where another process holds the directory's lock, or the disk is full: the next eviction does it.
    """
    values = zip(victims.entries, victims.values, strict=False)  # no values where last use alone counts
    went = [(entry.name, value) for entry, value in values if entry.name in gone]
    with contextlib.suppress(OSError):
        hold = directory.lock.try_hold() if went else None
        if hold is None:
            return
        try:
            worth = Worth(usage.image(FILE_BYTES))
            worth.note_evicted(went, time.time_ns(), victims.learned)
            for at, block in worth.changed():
                usage.write(at, block)
        finally:
            hold.release()


def sweep(
    directory: CacheDirectory, goal: Goal, should_stop: Callable[[], bool], priority: Priority = Policy.priority
) -> Evicted:
    """Evict like :func:`evict_to_limit`, but choose among all entries, and without a batch: for the daemon.

    ``should_stop`` is asked after every thousand files while looking and between lock holds while removing; once it
    returned true, it must go on doing so. Entries removed by then are accounted for.
    """
    usage = directory.usage()
    if goal.surplus(usage.total()) == (0, 0):
        return Evicted()
    trim_quarantine(directory, goal.limit_bytes)
    remove_orphan_views(directory)
    need = Need(*goal.surplus(usage.total()))
    ranked = _rank_all(directory.layout, need, should_stop, priority)
    # Other processes may have made room meanwhile: so keep the entries that would go last, not those of the last
    # shards.
    victims = first_enough(ranked.entries, Need(*goal.surplus(usage.total()))).victims
    gone = set[str]()
    evicted = remove_victims(directory, victims, goal, should_stop=should_stop, threads=_SWEEP_THREADS, gone=gone)
    _note_evicted(directory, usage, ranked._replace(entries=victims), gone)
    return evicted


def choose_of_all(
    layout: Layout, need: Need, should_stop: Callable[[], bool], priority: Priority = Policy.priority
) -> list[Found]:
    """Returns the victims of a sweep, the first to go first; none once ``should_stop`` returned true."""
    return first_enough(_rank_all(layout, need, should_stop, priority).entries, need).victims


def _rank_all(layout: Layout, need: Need, should_stop: Callable[[], bool], priority: Priority) -> Ranked:
    """Returns every entry that may be a victim, in the order of eviction; none once ``should_stop`` returned true."""
    between, image = partial(_stop_if, should_stop), b""
    with contextlib.suppress(OSError):
        image = read_small(layout, layout.state, FILE_BYTES)
    head = decode_head(image)
    try:
        kept = protected(layout, None if head is None else head.policy.entries_limit_bytes(head.space))
        oldest = _oldest_of_all(layout, need, between, priority, kept)
        if priority != "lru":
            oldest.sort(key=_name)  # records are read shard by shard: a quarter faster than at random
        return _ranked(layout, image, oldest, priority, between)
    except _StoppedError:
        return Ranked([])


class _StoppedError(Exception):
    """The caller asked to stop."""


def _stop_if(should_stop: Callable[[], bool]) -> None:
    """Raise :class:`_StoppedError` if ``should_stop`` says so."""
    if should_stop():
        raise _StoppedError


def _oldest_of_all(
    layout: Layout, need: Need, between: Callable[[], object], priority: Priority, kept: frozenset[str]
) -> list[Found]:
    """Returns every entry that may be a victim: the least recently used, and many more if costs count.

    ``kept``: the names of those that may not.
    """
    at_least = 0
    if priority != "lru":
        need = Need(need.bytes * _PRICED_FOR_EACH_NEEDED, need.entries * _PRICED_FOR_EACH_NEEDED)
        at_least = _PRICED_ENTRIES
    guess_ns = _guess_latest_ns(layout, need, at_least, between)
    oldest = Oldest(need, at_least, guess_ns)
    _show(layout, oldest, between, kept)
    found = oldest.take()
    if guess_ns == ANY_TIME_NS or oldest.is_met:
        return found
    oldest = Oldest(need, at_least)
    _show(layout, oldest, between, kept)
    return oldest.take()


def _guess_latest_ns(layout: Layout, need: Need, at_least: int, between: Callable[[], object]) -> int:
    """Returns by when all victims were used, to judge by a few shards; any time if that would not spare much.

    This saves building an object for each entry, a third of a sweep's time.
    """
    folders = ShardFolders(layout, evicts=True)
    few = [found for shard in range(_GUESSED_FROM_SHARDS) for found in folders.scan(shard, between=between)]
    if len(few) < _GUESSED_FROM_ENTRIES:
        return ANY_TIME_NS
    part = _GUESSED_FROM_SHARDS / SHARDS * _GUESSED_MORE
    oldest = Oldest(Need(int(need.bytes * part), int(need.entries * part)), int(at_least * part))
    oldest.add(few)
    wanted = oldest.take()
    return wanted[-1].last_use_ns if wanted and len(wanted) < len(few) else ANY_TIME_NS


def _show(layout: Layout, oldest: Oldest, between: Callable[[], object], kept: frozenset[str]) -> None:
    folders = ShardFolders(layout, evicts=True)
    for shard in range(SHARDS):
        between()
        found = folders.scan(shard, oldest.latest_ns, between)
        oldest.add((entry for entry in found if entry.name not in kept) if kept else found)


def all_entries(
    layout: Layout, should_stop: Callable[[], bool] = lambda: False, *, evicts: bool = False
) -> Iterator[Found]:
    """Yields every entry, shard by shard, also those that are not accounted for. Ends early if asked to.

    ``evicts``: as for :class:`ShardFolders`, for callers that evict by what they are shown.
    """
    between, folders = partial(_stop_if, should_stop), ShardFolders(layout, evicts=evicts)
    try:
        for shard in range(SHARDS):
            between()
            yield from folders.scan(shard, between=between)
    except _StoppedError:
        return


def sample_entries(
    layout: Layout, entries: Sequence[int], at_least: int, should_stop: Callable[[], bool] = lambda: False
) -> list[Found]:
    """Returns ``at_least`` entries, of whole shards from a random one on. Raises where ``should_stop`` says so.

    ``entries``: how many are accounted for by shard; shards with none are passed over.
    """
    folders, between = ShardFolders(layout, evicts=True), partial(_stop_if, should_stop)
    start = random.randrange(SHARDS)
    sample: list[Found] = []
    for shard in (*range(start, SHARDS), *range(start)):
        if entries[shard]:
            if should_stop():
                raise _StoppedError
            sample.extend(folders.scan(shard, between=between))
        if len(sample) >= at_least:
            break
    return sample

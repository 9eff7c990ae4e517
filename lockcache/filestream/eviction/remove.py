"""Removing victims: under their shards' locks, after a second look, each accounted for.

Keeps invariant 4 (readers never wait: one shard lock at a time, busy ones are passed over) and the evictor's half of
3 (hard cap): all evicting processes stop at the same sum of one shared page. Keeps invariant 5 (death is free): what is
unlinked is given back after it is gone, a lock hold at once, so that a death in between leaves too much accounted for,
by at most that many entries.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from lockcache.filestream.accounting import Found, ShardChange, StatePage
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    READ,
    SHARDS,
    Folder,
    PlantedFolderError,
    last_use_ns,
)
from lockcache.filestream.entry import (
    orphan_views,
    remove_empty_folders_locked,
    remove_locked,
    remove_orphan_views_locked,
    remove_views_locked,
)
from lockcache.filestream.eviction.choose import Goal

# Victims removed under one hold of a shard lock: half a millisecond at most, also on a slow disk.
_REMOVALS_PER_LOCK: Final = 32

# Writers hold a lock for some 20 us. With eight writers at full speed, one in a hundred and fifty attempts is refused.
# A holder that keeps a lock over several rounds hangs; the next sweep retries its shard.
_ROUNDS_FOR_BUSY: Final = 3


@dataclass(frozen=True)
class Evicted:
    """The bytes and entries that an eviction removed."""

    entries: int = 0
    bytes: int = 0

    def __add__(self, other: Evicted) -> Evicted:
        return Evicted(self.entries + other.entries, self.bytes + other.bytes)


def remove_victims(
    directory: CacheDirectory,
    victims: list[Found],
    goal: Goal | None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    threads: int = 1,
    in_use: set[str] | None = None,
) -> Evicted:
    """Remove ``victims`` that nobody used since they were chosen, until ``goal`` is met; ``None``: all of them.

    Entries whose view a process uses stay; their names are added to ``in_use``.

    ``should_stop`` is called between lock holds. Several ``threads`` work on one shard each: each holds one lock and
    waits for none; shards that were locked are tried again after all others.
    """
    usage = directory.usage()
    busy: list[Found] = []
    held_views = set[str]() if in_use is None else in_use

    def remove(in_shard: list[Found]) -> Evicted:
        done = Evicted()
        for start in range(0, len(in_shard), _REMOVALS_PER_LOCK):
            if (goal is not None and goal.is_met(usage.total())) or should_stop():
                break
            held = in_shard[start : start + _REMOVALS_PER_LOCK]
            removed = _remove_from_shard(directory, usage, held, held_views)
            if removed is None:
                busy.extend(held)  # threads share it: an extend is one step to them
            else:
                done += removed
        return done

    if threads == 1:
        return sum(map(remove, _by_shard(victims)), Evicted())
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that only the daemon pays

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(remove, _by_shard(victims)), Evicted())
    for _ in range(_ROUNDS_FOR_BUSY):
        again, busy = busy, []
        done += sum(map(remove, _by_shard(again)), Evicted())
    return done


def remove_empty_folders(directory: CacheDirectory) -> None:
    """Remove the folders of shards without entries, where folders count: the last resort of a small cap.

    A cap of a megabyte is full of the folders of 256 shards alone.
    """
    layout, usage = directory.layout, directory.usage()
    if not directory.space.shows_blocks:
        return
    for shard, slot in enumerate(usage.slots()):
        if slot.entries or not slot.bytes:
            continue
        try:
            hold = directory.locks[shard].try_hold()
        except OSError:
            continue  # a symlink for a folder; no inode or descriptor left for a lock file: as good as busy
        if hold is None:
            continue
        try:
            with ShardChange(layout, usage, shard):
                remove_empty_folders_locked(layout, shard)
        finally:
            hold.release()


def remove_orphan_views(directory: CacheDirectory) -> None:
    """Remove views that are no longer used and whose entries are gone; one call if there are none.

    No entry can be evicted for such views, so without this they would fill the cap bit by bit.
    """
    layout, usage = directory.layout, directory.usage()
    if not os.access(layout.views, os.F_OK, effective_ids=True):
        return
    for shard in range(SHARDS):
        if not orphan_views(layout, shard):
            continue
        try:
            hold = directory.locks[shard].try_hold()
        except OSError:
            continue  # as good as busy
        if hold is None:
            continue
        try:
            with ShardChange(layout, usage, shard) as change:
                change.bytes = -remove_orphan_views_locked(layout, shard).bytes
        finally:
            hold.release()


def _by_shard(victims: list[Found]) -> Iterable[list[Found]]:
    """Returns the victims in lists of one shard each, in their order."""
    for _, in_shard in groupby(sorted(victims, key=lambda found: found.name[:2]), key=lambda found: found.name[:2]):
        yield list(in_shard)


def _remove_from_shard(
    directory: CacheDirectory, usage: StatePage, victims: list[Found], in_use: set[str]
) -> Evicted | None:
    """Remove these victims of one shard. Returns what was removed; ``None`` if the shard's lock is taken."""
    layout, shard = directory.layout, int(victims[0].name[:2], 16)
    try:
        hold = directory.locks[shard].try_hold()
        if hold is None:
            return None
    except PlantedFolderError:
        return Evicted()  # a symlink for a folder of the shard: nothing is removed through it
    except OSError:
        return None  # no inode or descriptor left for a lock file that is not there yet: as good as busy
    try:
        change = ShardChange(layout, usage, shard)
        if not change.has_records:
            return _remove_plain_locked(change, victims)
        done = Evicted()
        for victim in victims:
            if _look_again(Folder(layout.entry_shard(shard)), victim) is None:
                continue
            # The views first: one that is used keeps its entry, and an entry without a view is whole.
            with change:
                views = remove_views_locked(layout, victim.name)
                change.bytes = -views.bytes
            if views.is_in_use:
                in_use.add(victim.name)
                _state_use(directory, victim.name)
            elif remove_locked(change, victim.name):
                done += Evicted(1, victim.size_bytes)
        return done
    finally:
        hold.release()


def _state_use(directory: CacheDirectory, name: str) -> None:
    """State that an entry is used now: else each sweep would choose it first, and have to keep it."""
    with contextlib.suppress(OSError), directory.layout.reach.open(directory.layout.entry(name), READ) as fd:
        directory.recency.touch(fd)


def _remove_plain_locked(change: ShardChange, victims: list[Found]) -> Evicted:
    """Remove entries without record files: two system calls each, and one give-back for all. Requires: shard lock."""
    of_file = change.space.of_file
    # The folder is gone, or a symlink is in its place: nothing there is an entry now.
    gone = contextlib.suppress(FileNotFoundError, PlantedFolderError)
    with change, gone, change.layout.reach.at(change.layout.entry_shard(change.shard)) as folder:
        for victim in victims:
            status = _look_again(folder, victim)
            if status is None:
                continue
            try:
                folder.unlink(victim.name[2:])
            except (FileNotFoundError, IsADirectoryError):
                continue
            change.entries -= 1
            change.bytes -= of_file(status)
    return Evicted(-change.entries, -change.bytes)


def _look_again(folder: Folder, victim: Found) -> os.stat_result | None:
    """Returns the victim's status, if it is still the chosen file and was not used since."""
    try:
        status = folder.stat(victim.name[2:])
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_same = status.st_ino == victim.inode and last_use_ns(status) == victim.last_use_ns
    return status if is_same and stat.S_ISREG(status.st_mode) else None

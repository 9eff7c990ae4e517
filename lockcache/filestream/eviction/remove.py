# SPDX-License-Identifier: Apache-2.0
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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from lockcache.filestream.accounting import Found, ShardChange, StatePage, bytes_in
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    DISK_FULL,
    READ,
    SHARDS,
    Folder,
    PlantedFolderError,
    last_use_ns,
)
from lockcache.filestream.entry import (
    orphan_views,
    remove_empty_folders_locked,
    remove_orphan_views_locked,
    remove_views_locked,
    unlink_counted,
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
    gone: set[str] | None = None,
    usage: StatePage | None = None,
) -> Evicted:
    """Remove ``victims`` that nobody used since they were chosen, until ``goal`` is met; ``None``: all of them.

    Entries whose view a process uses stay; their names are added to ``in_use``, and those of what it removed to
    ``gone``. ``usage``: as for :func:`.evict_to_limit`.

    ``should_stop`` is called between lock holds. Several ``threads`` work on one shard each: each holds one lock and
    waits for none; shards that were locked are tried again after all others.
    """
    names = (set() if in_use is None else in_use), (set() if gone is None else gone)
    removal = _Removal(directory, usage or directory.usage(), goal, should_stop, *names, [])
    shards: dict[str, list[Found]] = {}
    for victim in victims:
        shards.setdefault(victim.name[:2], []).append(victim)
    if threads == 1:
        return sum(map(removal.remove_in_shard, shards.values()), Evicted())
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that only the daemon pays

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(removal.remove_in_shard, shards.values()), Evicted())
    for _ in range(_ROUNDS_FOR_BUSY):
        busy = removal.busy.copy()
        removal.busy.clear()
        done += sum(map(removal.remove_in_shard, busy), Evicted())
    return done


class _Removal(NamedTuple):
    """The removal of some victims, by one thread or several."""

    directory: CacheDirectory
    usage: StatePage
    goal: Goal | None
    should_stop: Callable[[], bool]
    #: The names of the entries that stay because a process uses a view of them.
    in_use: set[str]
    #: The names of those that are removed.
    gone: set[str]
    #: Victims that stay because their shard was locked, a list for each shard. Threads share these: each change is one
    #: step.
    busy: list[list[Found]]

    def remove_in_shard(self, victims: list[Found]) -> Evicted:
        """Remove victims of one shard, some under each hold of its lock, until the goal is met or the shard is busy."""
        done, goal = Evicted(), self.goal
        for start in range(0, len(victims), _REMOVALS_PER_LOCK):
            # Read each time: other processes evict, and store, meanwhile.
            if goal is not None and (
                goal.is_met(self.usage.total())
                if goal.limit_entries is not None
                else goal.limit_bytes is None or bytes_in(self.usage.whole()) <= goal.limit_bytes
            ):
                break
            if self.should_stop():
                break
            try:
                hold, page, known = self.directory.hold_shard(int(victims[0].name[:2], 16), 0.0)
            except PlantedFolderError:
                break  # a symlink for a folder of the shard: nothing is removed through it
            except OSError:  # busy; or no inode or descriptor left for a lock file, which is as good as busy
                self.busy.append(victims[start:])
                break
            try:
                if page is not self.usage:
                    break  # the goal is that of a page which is in force no longer
                done += self._remove_locked(victims[start : start + _REMOVALS_PER_LOCK], known)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                # A file system that copies what is written (btrfs at its quota) had no block for the page, or for an
                # unlink. What is gone is its room; it is accounted for until a recount: too much, never too little.
                self.busy.append(victims[start:])
                break
            finally:
                hold.release()
        return done

    def _remove_locked(self, victims: list[Found], known: bytes) -> Evicted:
        """Remove victims of one shard: two system calls each, and one give-back for all. Requires: shard lock."""
        change = ShardChange(self.directory.layout, self.usage, int(victims[0].name[:2], 16), known)
        reach, has_records, of_file = change.layout.reach, change.has_records, change.space.of_file
        entries, records, _ = change.layout.shard_folders(change.shard)
        # The folder is gone, or a symlink is in its place: nothing there is an entry now.
        gone = contextlib.suppress(FileNotFoundError, PlantedFolderError)
        with change, gone, reach.at(entries) as folder:
            for victim in victims:
                status = _look_again(folder, victim)
                if status is None or (has_records and self._has_used_view_locked(victim.name, change)):
                    continue
                try:
                    folder.unlink(victim.name[2:])
                except (FileNotFoundError, IsADirectoryError):
                    continue
                self.gone.add(victim.name)
                change.entries -= 1
                change.bytes -= of_file(status)
                if has_records:
                    with gone, reach.at(records) as record_folder:
                        change.bytes -= unlink_counted(change.space, record_folder, victim.name[2:])
        return Evicted(-change.entries, -change.bytes)

    def _has_used_view_locked(self, name: str, change: ShardChange) -> bool:
        """Remove the views of an entry. Returns whether one is left, because a process uses it. Requires: shard lock.

        They go before their entry: one that is used keeps it, and an entry without a view is whole.
        """
        layout = change.layout
        views = remove_views_locked(layout, name)
        change.bytes -= views.bytes
        if views.is_in_use:
            self.in_use.add(name)
            # State that the entry is used now: else each sweep would choose it first, and have to keep it.
            with contextlib.suppress(OSError), layout.reach.open(layout.entry(name), READ) as fd:
                self.directory.recency.touch(fd)
        return views.is_in_use


def remove_empty_folders(directory: CacheDirectory) -> None:
    """Remove the folders of shards without entries, where folders count: the last resort of a small cap.

    A cap of a megabyte is full of the folders of 256 shards alone.
    """
    layout = directory.layout
    for shard, slot in enumerate(directory.usage().slots()):
        if slot.entries or not slot.bytes:
            continue
        try:
            hold, usage, known = directory.hold_shard(shard, 0.0)
        except OSError:
            continue  # busy; a symlink for a folder; no inode or descriptor left for a lock file: as good as busy
        try:
            with ShardChange(layout, usage, shard, known):
                remove_empty_folders_locked(layout, shard)
        finally:
            hold.release()


def remove_orphan_views(directory: CacheDirectory) -> None:
    """Remove views that are no longer used and whose entries are gone; one call if there are none.

    No entry can be evicted for such views, so without this they would fill the cap bit by bit.
    """
    layout = directory.layout
    if not os.access(layout.views, os.F_OK, effective_ids=True):
        return
    for shard in range(SHARDS):
        if not orphan_views(layout, shard):
            continue
        try:
            hold, usage, known = directory.hold_shard(shard, 0.0)
        except OSError:
            continue  # busy, or as good as that
        try:
            with ShardChange(layout, usage, shard, known) as change:
                change.bytes = -remove_orphan_views_locked(layout, shard).bytes
        finally:
            hold.release()


def _look_again(folder: Folder, victim: Found) -> os.stat_result | None:
    """Returns the victim's status, if it is still the chosen file and was not used since."""
    try:
        status = folder.stat(victim.name[2:])
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_same = status.st_ino == victim.inode and last_use_ns(status) == victim.last_use_ns
    return status if is_same and stat.S_ISREG(status.st_mode) else None

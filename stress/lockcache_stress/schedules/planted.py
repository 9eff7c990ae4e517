# SPDX-License-Identifier: Apache-2.0
"""Faults to plant in the processes of a schedule, with the experiment that has to find each.

Those of :mod:`lockcache_stress.trouble` that an order, a death or a clock can show, and more: each is an order of steps
that somebody could well have written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from filelock import lock_descriptor

from lockcache.filestream import EntryWriter
from lockcache.filestream.accounting import FirstCount, ShardChange, StatedPolicy, measure_shard, slots_in
from lockcache.filestream.compile_once import LeaseTurn
from lockcache.filestream.disk import Layout, staged_path
from lockcache.filestream.entry import StagedEntry, reservation, staging
from lockcache.filestream.eviction import Evicted, remove
from lockcache.filestream.repair import abandoned, recount
from lockcache_stress.schedules import operations
from lockcache_stress.trouble import BUGS


@dataclass(frozen=True)
class Planted:
    """One fault, and how it is found."""

    help: str
    plant: Callable[[], None]
    #: The operations, one process each, of the schedules that find it.
    operations: tuple[str, ...]
    #: A part of what is said of the schedule.
    found_as: str
    most_preemptions: int = 1
    kills: bool = False


def _plant_known(name: str) -> Callable[[], None]:
    plant = BUGS[name].plant
    if plant is None:
        raise ValueError(f"{name} is not planted by replacing functions")
    return plant


def _known(name: str, operations: tuple[str, ...], found_as: str, **more: Any) -> Planted:
    return Planted(BUGS[name].help, _plant_known(name), operations, found_as, **more)


def _replace(owner: Any, name: str, by: object) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner!r} has no {name}: the library has changed, and this fault must follow it")
    setattr(owner, name, by)


def _slot_without_lock() -> None:
    def take(self: Any, make: Callable[[str], int | None]) -> int:
        path = staged_path(self._directory.layout, self.shard, self.size_bytes)
        hold = self.hold()
        try:
            self.path = path
            fd = make(path)
            if fd is not None:
                lock_descriptor(fd, blocking=False)
        finally:
            hold.release()
        self.page.add_locked(self.shard, self.size_bytes, 0)
        self.is_standing = True
        return -1 if fd is None else fd

    _replace(reservation.Reservation, "take", take)


def _unlink_first() -> None:
    def remove_locked(self: Any, victims: list[Any], known: bytes) -> Evicted:
        change = ShardChange(self.directory.layout, self.usage, int(victims[0].name[:2], 16), known)
        entries, _, _ = change.layout.shard_folders(change.shard)
        with change, change.layout.reach.at(entries) as folder:
            for victim in victims:
                with suppress(FileNotFoundError):
                    status = folder.stat(victim.name[2:])
                    folder.unlink(victim.name[2:])
                    if status.st_ino == victim.inode:
                        change.entries -= 1
                        change.bytes -= change.space.of_file(status)
        return Evicted(-change.entries, -change.bytes)

    _replace(remove._Removal, "_remove_locked", remove_locked)


def _lease_back_first() -> None:
    begin, store = LeaseTurn.begin, EntryWriter.store
    begun: list[LeaseTurn] = []

    def begin_noted(self: LeaseTurn) -> None:
        begun.append(self)
        begin(self)

    def store_afterwards(self: EntryWriter, *given: Any, **named: Any) -> Any:
        while begun:
            begun.pop().release()
        return store(self, *given, **named)

    _replace(LeaseTurn, "begin", begin_noted)
    _replace(EntryWriter, "store", store_afterwards)


def _credited_twice() -> None:
    publish = StagedEntry._publish_locked

    def publish_twice(self: StagedEntry, change: ShardChange, path: str, replaced_bytes: int | None) -> None:
        publish(self, change, path, replaced_bytes)
        if replaced_bytes:
            self.reservation.account.add_locked(self.reservation.shard, -replaced_bytes, 0)

    _replace(StagedEntry, "_publish_locked", publish_twice)


def _no_owner_check() -> None:
    _replace(abandoned, "_is_abandoned", lambda *_: True)


def _policy_once() -> None:
    read: dict[int, Any] = {}
    stated_in = StatedPolicy.stated_in

    def stated_once(self: StatedPolicy, image: bytes) -> Any:
        if id(self) not in read:
            read[id(self)] = self.stated if self.stated.policy.max_size_bytes else stated_in(self, image)
        return read[id(self)]

    _replace(StatedPolicy, "stated_in", stated_once)


def _cap_kept() -> None:
    _replace(StagedEntry, "_has_room_locked", lambda self: True)


def _page_without_locks() -> None:
    def measure(self: FirstCount, shard: int) -> Any:
        return measure_shard(self.layout, shard, between=self.between_shards)

    _replace(FirstCount, "_measure", measure)


def _record_last() -> None:
    rename, publish = staging._rename, StagedEntry._publish_record_locked
    later: list[Callable[[], object]] = []

    def publish_later(self: StagedEntry, change: ShardChange, *, has_older: bool) -> int | None:
        later.append(partial(publish, self, change, has_older=False))
        return None

    def rename_first(layout: Layout, source: str, path: str, parent: str) -> None:
        rename(layout, source, path, parent)
        while later:
            later.pop()()

    _replace(StagedEntry, "_publish_record_locked", publish_later)
    _replace(staging, "_rename", rename_first)


def _sum_first() -> None:
    take = reservation.Reservation.take

    def take_after_look(self: Any, make: Callable[[str], int | None]) -> int:
        seen = self.page.whole()
        found = take(self, make)
        # The sum as it was before, with the own reservation.
        slot = slots_in(seen)[self.shard]
        offset = 4096 + self.shard * 16
        own = (slot.bytes + self.size_bytes).to_bytes(8, "little")
        image = seen[:offset] + own + seen[offset + 8 :]
        images[id(self)] = image
        return found

    images: dict[int, bytes] = {}
    _replace(reservation.Reservation, "take", take_after_look)
    _replace(reservation.Reservation, "whole_after", lambda self: images[id(self)])


def _count_without_lock() -> None:
    def recount_shard(directory: Any, shard: int, *_: Any, **__: Any) -> Any:
        after = measure_shard(directory.layout, shard)
        hold, usage, _known = directory.hold_shard(shard)
        try:
            before = usage.slot(shard)
            usage.set_locked(shard, after)
        finally:
            hold.release()
        return recount.Repair(shard, before, after)

    _replace(recount, "recount_shard", recount_shard)
    _replace(operations, "recount_shard", recount_shard)


def _tidy_by_list() -> None:
    def tidy(directory: Any) -> None:
        folder = directory.layout.entry_shard(operations.FAR_SHARD)
        if not os.listdir(folder):
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)

    _replace(operations, "tidy", tidy)


#: Every fault, by name.
PLANTED: Final = {
    "rename-first": _known("rename-first", ("replace", "get"), "have no order"),
    "no-second-look": _known("no-second-look", ("evict", "get"), "used since it was chosen"),
    "no-reservation": _known("no-reservation", ("put", "put"), "too little", most_preemptions=0),
    "no-lock-in-publish": _known("no-lock-in-publish", ("replace", "replace"), "wrong by", most_preemptions=2),
    "record-apart": _known("record-apart", ("record", "get"), "have no order", most_preemptions=3, kills=True),
    "lease-kept": _known("lease-kept", ("give-up", "lease"), "waited for"),
    "starts-by-the-clock": _known("starts-by-the-clock", ("put", "stepped"), "had staged"),
    "waiters-poll": _known("waiters-poll", ("slow-lease", "lease"), "times in a second", most_preemptions=0),
    "slot-without-lock": Planted(
        "a slot of the page is written without its shard's lock", _slot_without_lock, ("put", "remove"), "wrong by"
    ),
    "unlink-first": Planted(
        "a victim is unlinked before the second look at it", _unlink_first, ("evict", "get"), "used since it was chosen"
    ),
    "lease-back-first": Planted(
        "a lease is given back before the entry is stored",
        _lease_back_first,
        ("lease", "lease"),
        "computed the same key",
    ),
    "credited-twice": Planted(
        "what a put replaces is given back twice", _credited_twice, ("replace", "get"), "too little", 0
    ),
    "no-owner-check": Planted(
        "staged files are reaped without a look at their owner", _no_owner_check, ("put", "recount"), "had staged"
    ),
    "policy-once": Planted("the policy is read once", _policy_once, ("evict", "policy"), "over the cap"),
    "page-without-locks": Planted(
        "a new page is counted without the locks of shards", _page_without_locks, ("replace", "count"), "too little"
    ),
    "record-last": Planted("a record is published after its payload", _record_last, ("record", "get"), "have no order"),
    "sum-first": Planted(
        "the sum is looked at before the own reservation stands", _sum_first, ("put", "put-far"), "over the cap"
    ),
    "count-without-lock": Planted(
        "a shard is measured before its lock is taken", _count_without_lock, ("recount", "put"), "too little"
    ),
    "cap-kept": Planted(
        "a write that had its room by an older cap does not ask again before it publishes",
        _cap_kept,
        ("slow-wide", "narrow"),
        "over the cap",
        most_preemptions=0,
    ),
    "tidy-by-list": Planted(
        "a folder is emptied and removed once its list was empty", _tidy_by_list, ("tidy", "put-alone"), "have no order"
    ),
}

"""Budgets that directories share, seen to after each round of ticks: the total of a node, and what is to stay free.

Keeps a total where writers cannot: each of them knows only its own directory's cap. So between two ticks the sum may
exceed it, by what is written in a tick; no single directory ever exceeds it, since it is part of each one's cap. What
is freed for a file system is looked for there right away; one that frees later (at its next commit) is not swept again
for as long, or it would lose the whole cache to one shortage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from lockcache.lowlevel import Evicted, Found, Slot
from lockcache_daemon.budgets.choose import Member, Room, free_shortage, share_out, total_surplus
from lockcache_daemon.pace import Pace
from lockcache_daemon.settings import Excess, Rules, Settings

# To know whose entries are older, all directories are walked. Where that led to nothing (all is in use, or being
# written), the next walk may take this share of the time.
_FRUITLESS_DUTY: Final = 0.25

# btrfs commits every 30 s, and file servers may tell the free space of a while ago.
_LATE_SECONDS: Final = 35.0


class Directory(Protocol):
    """A directory that shares budgets: a :class:`.keeper.Keeper`, or what a dry run has in its place."""

    root: str
    rules: Rules

    @property
    def is_able(self) -> bool: ...
    @property
    def is_safe(self) -> bool: ...
    @property
    def held(self) -> Slot: ...
    def take(self, step: Callable[[], object]) -> bool: ...
    def entries(self) -> Iterator[Found]: ...
    def sweep_for(self, excess: Excess) -> Evicted: ...


class SharedBudgets:
    """For the keepers of one daemon. For the main thread."""

    def __init__(self, look: Callable[[str], Room] | None = None) -> None:
        self._look = look or look_at_file_system
        self._pace = Pace(_FRUITLESS_DUTY, 0.0)
        self._was_fruitless = False
        #: By device: until when it may take its time to free what was evicted, and how much is free when it has begun.
        self._late: dict[int, tuple[float, float]] = {}
        self._last_bytes: dict[str, int] = {}

    def tick(
        self, settings: Settings, keepers: Sequence[Directory], busy: Collection[Directory] = ()
    ) -> dict[str, Evicted]:
        """Sweep what is too much. What was evicted, by directory. Raises only :class:`Stopped`.

        ``busy`` ones are not touched, nor those that are not safe: they count for what they held when they were last
        looked at, and lose nothing.
        """
        evicted: dict[str, Evicted] = {}
        busy = [keeper for keeper in keepers if keeper in busy or not keeper.is_safe]
        idle = [keeper for keeper in keepers if keeper not in busy]
        if settings.total is not None:
            self._keep_total(settings.total, idle, busy, evicted)
        by_device: dict[int, list[Directory]] = {}
        for keeper in idle:
            if keeper.rules.min_free is not None:
                keeper.take(partial(_sort_in, keeper, by_device))
        for device, sharing in by_device.items():
            sharing[0].take(partial(self._keep_free, device, sharing, evicted))
        return evicted

    def _keep_total(
        self, total_bytes: int, keepers: Sequence[Directory], busy: Collection[Directory], evicted: dict[str, Evicted]
    ) -> None:
        held = _held(keepers)
        self._last_bytes.update({keeper.root: slot.bytes for keeper, slot in held})
        shares = [(slot.bytes, keeper.rules.floor_bytes) for keeper, slot in held]
        shares += [(self._last_bytes.get(each.root, 0),) * 2 for each in busy]
        low_share = max((keeper.rules.low_share for keeper, _ in held), default=1.0)
        surplus = total_surplus(total_bytes, low_share, shares)
        if surplus:
            self._sweep("total", Slot(surplus, 0), held, evicted)

    def _keep_free(self, device: int, keepers: Sequence[Directory], evicted: dict[str, Evicted]) -> None:
        room = self._look(keepers[0].root)
        until, expected_bytes = self._late.get(device, (0.0, 0.0))
        if room.free_bytes < expected_bytes and time.monotonic() < until:
            return
        self._late.pop(device, None)  # it came: what is missing from now on is a shortage of its own
        shortages = {keeper.root: _shortage(keeper, room) for keeper in keepers}
        needed = Slot(max(each.bytes for each in shortages.values()), max(each.entries for each in shortages.values()))
        if needed == (0, 0):
            return
        freed_bytes = self._sweep(
            "min-free", needed, _held([keeper for keeper in keepers if shortages[keeper.root] != (0, 0)]), evicted
        )
        expected_bytes = room.free_bytes + freed_bytes / 2
        if self._look(keepers[0].root).free_bytes < expected_bytes:
            self._late[device] = time.monotonic() + _LATE_SECONDS, expected_bytes

    def _sweep(
        self, budget: str, needed: Slot, held: Sequence[tuple[Directory, Slot]], evicted: dict[str, Evicted]
    ) -> int:
        """Bytes that were evicted."""
        if self._was_fruitless and not self._pace.is_due:
            return 0
        done = Evicted()
        with self._pace:
            members = [Member(slot, keeper.rules.floor_bytes, keeper.entries()) for keeper, slot in held]
            for (keeper, _), goal in zip(held, share_out(needed, members), strict=True):
                if goal is not None:
                    swept = keeper.sweep_for(Excess(budget, goal))
                    evicted[keeper.root] = evicted.get(keeper.root, Evicted()) + swept
                    done += swept
        self._was_fruitless = not done.entries
        return done.bytes


def _held(keepers: Sequence[Directory]) -> list[tuple[Directory, Slot]]:
    """What each holds, of those that can be swept now."""
    found: list[tuple[Directory, Slot]] = []
    for keeper in keepers:
        if keeper.is_able:
            keeper.take(partial(_ask, keeper, found))
    return found


def _ask(keeper: Directory, found: list[tuple[Directory, Slot]]) -> None:
    found.append((keeper, keeper.held))


def _sort_in(keeper: Directory, by_device: dict[int, list[Directory]]) -> None:
    by_device.setdefault(os.stat(keeper.root).st_dev, []).append(keeper)


def _shortage(keeper: Directory, room: Room) -> Slot:
    wanted = keeper.rules.min_free
    return Slot(0, 0) if wanted is None else free_shortage(wanted, room, keeper.rules.low_share)


def look_at_file_system(path: str) -> Room:
    """Raises :class:`OSError`."""
    found = os.statvfs(path)
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)

# SPDX-License-Identifier: Apache-2.0
"""Budgets that directories share, applied after each round of ticks: the total of a node, and ``--min-free``.

Keeps a total, which writers cannot keep: each writer knows only the cap of its own directory. So between two ticks the
sum may exceed the total by what is written in a tick. No single directory ever exceeds the total, which bounds the cap
of each. After a sweep for free space the free bytes are measured at once. A file system that frees later (at its next
commit) is not swept again until then, or one shortage would cost the whole cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from lockcache.lowlevel import Evicted, Found, Goal, Slot
from lockcache_daemon.budgets.choose import Member, Room, free_shortage, share_out, total_surplus
from lockcache_daemon.settings import Rules, Settings
from lockcache_daemon.throttle import Throttle

# To compare the ages of entries, all directories are walked. Where a walk led to no eviction (all entries are in use,
# or being written), the next walk may take this share of the time.
_FRUITLESS_DUTY: Final = 0.25

# btrfs commits every 30 s, and file servers may report the free space of a while ago.
_LATE_SECONDS: Final = 35.0


T = TypeVar("T")


class Directory(Protocol):
    """A directory that shares budgets: a :class:`.keeper.Keeper`, or the stand-in of a dry run."""

    root: str
    rules: Rules

    @property
    def is_able(self) -> bool: ...
    @property
    def is_safe(self) -> bool: ...
    def held(self) -> Slot: ...
    def attempt(self, step: Callable[[], T]) -> T | None: ...
    def entries(self) -> Iterator[Found]: ...
    def sweep_for(self, budget: str, goal: Goal) -> Evicted: ...


class SharedBudgets:
    """The shared budgets of the keepers of one daemon. For the main thread."""

    def __init__(self, look: Callable[[str], Room] | None = None) -> None:
        self._look = look or look_at_file_system
        self._throttle = Throttle(_FRUITLESS_DUTY, 0.0)
        self._was_fruitless = False
        #: By device: until when it may take to free what was evicted, and the free bytes that show that it has begun.
        self._late: dict[int, tuple[float, float]] = {}
        self._last_bytes: dict[str, int] = {}

    def tick(
        self, settings: Settings, keepers: Sequence[Directory], busy: Collection[Directory] = ()
    ) -> dict[str, Evicted]:
        """Sweep what exceeds a shared budget. Returns the evictions, by directory. Raises only :class:`Stopped`.

        Directories that are ``busy`` or not safe are not touched: they count for what they held when they were last
        measured, and lose nothing.
        """
        evicted: dict[str, Evicted] = {}
        busy = [keeper for keeper in keepers if keeper in busy or not keeper.is_safe]
        idle = [keeper for keeper in keepers if keeper not in busy]
        if settings.total is not None:
            self._keep_total(settings.total, idle, busy, evicted)
        by_device: dict[int, list[Directory]] = {}
        for keeper in idle:
            if keeper.rules.min_free is not None and (status := keeper.attempt(partial(os.stat, keeper.root))):
                by_device.setdefault(status.st_dev, []).append(keeper)
        for device, sharing in by_device.items():
            sharing[0].attempt(partial(self._keep_free, device, sharing, evicted))
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
        self._late.pop(device, None)  # the space came: what is missing from now on is another shortage
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
        """Sweep ``needed`` from ``held``. Returns the bytes that were evicted."""
        if self._was_fruitless and not self._throttle.is_due:
            return 0
        done = Evicted()
        with self._throttle:
            members = [Member(slot, keeper.rules.floor_bytes, keeper.entries()) for keeper, slot in held]
            for (keeper, _), goal in zip(held, share_out(needed, members), strict=True):
                if goal is not None:
                    swept = keeper.sweep_for(budget, goal)
                    evicted[keeper.root] = evicted.get(keeper.root, Evicted()) + swept
                    done += swept
        self._was_fruitless = not done.entries
        return done.bytes


def _held(keepers: Sequence[Directory]) -> list[tuple[Directory, Slot]]:
    """Returns what each directory holds, of those that can be swept now."""
    found = ((keeper, keeper.attempt(keeper.held)) for keeper in keepers if keeper.is_able)
    return [(keeper, held) for keeper, held in found if held is not None]


def _shortage(keeper: Directory, room: Room) -> Slot:
    wanted = keeper.rules.min_free
    return Slot(0, 0) if wanted is None else free_shortage(wanted, room, keeper.rules.low_share)


def look_at_file_system(path: str) -> Room:
    """Returns the room on the file system of ``path``. Raises :class:`OSError`."""
    found = os.statvfs(path)
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)

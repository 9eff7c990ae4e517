"""``--dry-run``: what a pass would evict from each directory, and by which budget, without touching anything.

Keeps one promise: no file and no directory is made, changed or removed, not even the policy, and no lock is taken. So
it works next to a running daemon, and on directories that may only be read. Budgets have their turns as in a tick: each
directory's own, then the total, then what is to stay free, each seeing what those before it would have left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lockcache.errors import PolicyError
from lockcache.filestream.disk import space_of
from lockcache.filestream.eviction import Need, first_enough
from lockcache.lowlevel import Evicted, Found, Policy, PolicyFile, Slot, check_directory
from lockcache_daemon.budgets.choose import Member, free_shortage, share_out, total_surplus
from lockcache_daemon.budgets.shared import look_at_file_system
from lockcache_daemon.observe import Report
from lockcache_daemon.settings import Bite, DirectorySettings, Rules, Settings, rules_for
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import View, view, view_lockcache


def _count(found: Iterable[Found]) -> Evicted:
    sizes = [each.size_bytes for each in found]
    return Evicted(len(sizes), sum(sizes))


class Rehearsal:
    """One directory, and what would go of it so far. Raises what opening it would raise, and :class:`Stopped`."""

    def __init__(self, root: str, rules: Rules, report: Report, stop: StopSignals, view: View = view_lockcache) -> None:
        self.root = root
        self.rules = rules
        self._stop = stop
        self._seen = view(root, stop)
        check_directory(self._seen.layout, rules.group if view is view_lockcache else False)
        try:
            found = PolicyFile(self._seen.layout).load()
        except PolicyError as error:
            report.warned(f"{error}; a daemon would replace it")
            found = Policy()
        self._policy = found if rules.max_size_bytes is None else rules.policy
        self.held = self._seen.measure()
        self._gone: dict[str, int] = {}
        #: What would go for which budget, in the order in which they have their turns.
        self.budgets: dict[str, Evicted] = {}

    @property
    def left(self) -> Slot:
        """What would be left by now."""
        return Slot(self.held.bytes - sum(self._gone.values()), self.held.entries - len(self._gone))

    @property
    def evicted(self) -> Evicted:
        """What would go for all budgets together."""
        return Evicted(len(self._gone), sum(self._gone.values()))

    def entries(self) -> Iterator[Found]:
        """Every whole entry that would be left by now."""
        return (found for found in self._seen.entries() if found.name not in self._gone)

    def apply_own(self) -> None:
        """Its own budgets."""
        bite = self.rules.bite(self._policy, space_of(self._seen.layout), self.held)
        if bite is not None:
            self.apply(bite)
        if self.rules.max_age_seconds is not None:
            before_ns = time.time_ns() - int(self.rules.max_age_seconds * 1e9)
            self._take("max-age", [found for found in self.entries() if found.last_use_ns < before_ns])

    def apply(self, bite: Bite) -> None:
        """One budget, also one that directories share."""
        surplus = bite.goal.surplus(self.left)
        if surplus == (0, 0):
            return
        gone = self.evicted
        need = Need(surplus.bytes + gone.bytes, surplus.entries + gone.entries)
        ordered = (found for found in self._seen.victims(need, self.rules.priority) if found.name not in self._gone)
        self._take(bite.budget, first_enough(list(ordered), Need(*surplus))[0])

    def _take(self, budget: str, victims: list[Found]) -> None:
        self._stop.raise_if_set()
        if victims:
            self._gone.update((found.name, found.size_bytes) for found in victims)
            self.budgets[budget] = _count(victims)


def rehearse_all(settings: Settings, layouts: Mapping[str, str], report: Report, stop: StopSignals) -> None:
    """Say what would be evicted from each directory; ``layouts`` by path.

    Raises what opening one of them would raise, and :class:`Stopped`.
    """
    seen = []
    for directory in settings.directories:
        if os.path.lexists(directory.path):
            seen.append(_look(settings, directory, layouts[directory.path], report, stop))
        else:
            report.missing(directory.path)
    if settings.total is not None and seen:
        _apply_total(settings.total, seen)
    _apply_free(seen)
    for rehearsal in seen:
        report.rehearsed(rehearsal.root, rehearsal.held, rehearsal.evicted, rehearsal.budgets)


def _look(
    settings: Settings, directory: DirectorySettings, layout: str, report: Report, stop: StopSignals
) -> Rehearsal:
    rehearsal = Rehearsal(directory.path, rules_for(settings, directory), report, stop, view(layout))
    rehearsal.apply_own()
    return rehearsal


def _apply_total(total_bytes: int, seen: Sequence[Rehearsal]) -> None:
    low_share = max(each.rules.low_share for each in seen)
    surplus = total_surplus(total_bytes, low_share, [(each.left.bytes, each.rules.floor_bytes) for each in seen])
    if surplus:
        _share("total", Slot(surplus, 0), seen)


def _apply_free(seen: Sequence[Rehearsal]) -> None:
    by_device: dict[int, list[Rehearsal]] = {}
    for each in seen:
        by_device.setdefault(os.stat(each.root).st_dev, []).append(each)
    for sharing in by_device.values():
        room = look_at_file_system(sharing[0].root)
        freed = [each.evicted for each in sharing]
        room = room._replace(
            free_bytes=room.free_bytes + sum(each.bytes for each in freed),
            free_inodes=room.free_inodes + sum(each.entries for each in freed),
        )
        short = []
        for each in sharing:
            wanted = each.rules.min_free
            shortage = Slot(0, 0) if wanted is None else free_shortage(wanted, room, each.rules.low_share)
            if shortage != (0, 0):
                short.append((each, shortage))
        if short:
            needed = Slot(max(slot.bytes for _, slot in short), max(slot.entries for _, slot in short))
            _share("min-free", needed, [each for each, _ in short])


def _share(budget: str, needed: Slot, seen: Sequence[Rehearsal]) -> None:
    members = [Member(each.left, each.rules.floor_bytes, each.entries()) for each in seen]
    for each, goal in zip(seen, share_out(needed, members), strict=True):
        if goal is not None:
            each.apply(Bite(budget, goal))

"""``--dry-run``: what a pass would evict from each directory, and by which budget, without touching anything.

Keeps one promise: no file and no directory is made, changed or removed, not even the policy, and no lock is taken. So
it works next to a running daemon, and on directories that may only be read. Budgets have their turns as in a tick: each
directory's own, then the total, then what is to stay free, each seeing what those before it would have left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from lockcache.errors import PolicyError
from lockcache.filestream.disk import space_of
from lockcache.filestream.eviction import Need, first_enough
from lockcache.lowlevel import Evicted, Found, Policy, PolicyFile, Slot, check_directory, choose_victims
from lockcache_daemon.budgets.choose import Room
from lockcache_daemon.budgets.shared import SharedBudgets, look_at_file_system
from lockcache_daemon.observe import Report
from lockcache_daemon.settings import Bite, DirectorySettings, Rules, Settings, rules_for
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import View, view, view_lockcache


def _count(found: Iterable[Found]) -> Evicted:
    sizes = [each.size_bytes for each in found]
    return Evicted(len(sizes), sum(sizes))


class Rehearsal:
    """One directory, and what would go of it so far: to :class:`SharedBudgets` as a keeper, which removes nothing.

    Raises what opening it would raise, and :class:`Stopped`.
    """

    is_able = is_safe = True

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
        self.before = self._seen.measure()
        self._gone: dict[str, int] = {}
        #: What would go for which budget, in the order in which they have their turns.
        self.budgets: dict[str, Evicted] = {}

    @property
    def held(self) -> Slot:
        """What would be left by now."""
        return Slot(self.before.bytes - sum(self._gone.values()), self.before.entries - len(self._gone))

    @property
    def evicted(self) -> Evicted:
        """What would go for all budgets together."""
        return Evicted(len(self._gone), sum(self._gone.values()))

    def entries(self) -> Iterator[Found]:
        """Every whole entry that would be left by now."""
        return (found for found in self._seen.entries() if found.name not in self._gone)

    def apply_own(self) -> None:
        """Its own budgets."""
        bite = self.rules.bite(self._policy, space_of(self._seen.layout), self.before)
        if bite is not None:
            self.sweep_for(bite)
        if self.rules.namespaces:
            self._apply_namespaces()
        if self.rules.max_age_seconds is not None:
            before_ns = time.time_ns() - int(self.rules.max_age_seconds * 1e9)
            self._evict("max-age", [found for found in self.entries() if found.last_use_ns < before_ns])

    def _apply_namespaces(self) -> None:
        budgeted, owned = dict(self.rules.namespaces), dict[str, list[Found]]()
        for found in self.entries():
            name = self._seen.namespace_of(found)
            if name in budgeted:
                owned.setdefault(name, []).append(found)
        held = {name: Slot(sum(found.size_bytes for found in own), len(own)) for name, own in owned.items()}
        for name, low in self.rules.over(held):
            self._evict(f"namespace {name}", choose_victims(owned[name], held[name].bytes - low, 0)[0])

    def take(self, step: Callable[[], object]) -> bool:
        """Take a step of a budget that directories share. Raises what it raises."""
        step()
        return True

    def sweep_for(self, bite: Bite) -> Evicted:
        """Returns what would go for one budget, also one that directories share."""
        surplus = bite.goal.surplus(self.held)
        if surplus == (0, 0):
            return Evicted()
        gone = self.evicted
        need = Need(surplus.bytes + gone.bytes, surplus.entries + gone.entries)
        ordered = (found for found in self._seen.victims(need, self.rules.priority) if found.name not in self._gone)
        return self._evict(bite.budget, first_enough(list(ordered), Need(*surplus))[0])

    def _evict(self, budget: str, victims: list[Found]) -> Evicted:
        self._stop.raise_if_set()
        if victims:
            self._gone.update((found.name, found.size_bytes) for found in victims)
            self.budgets[budget] = _count(victims)
        return _count(victims)


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
    SharedBudgets(partial(_file_system_after, seen)).tick(settings, seen)
    for rehearsal in seen:
        report.rehearsed(rehearsal.root, rehearsal.before, rehearsal.evicted, rehearsal.budgets)


def _look(
    settings: Settings, directory: DirectorySettings, layout: str, report: Report, stop: StopSignals
) -> Rehearsal:
    rehearsal = Rehearsal(directory.path, rules_for(settings, directory), report, stop, view(layout))
    rehearsal.apply_own()
    return rehearsal


def _file_system_after(seen: Sequence[Rehearsal], path: str) -> Room:
    """What would be free by now where ``path`` is."""
    room, device = look_at_file_system(path), os.stat(path).st_dev
    freed = [each.evicted for each in seen if os.stat(each.root).st_dev == device]
    return room._replace(
        free_bytes=room.free_bytes + sum(each.bytes for each in freed),
        free_inodes=room.free_inodes + sum(each.entries for each in freed),
    )

# SPDX-License-Identifier: Apache-2.0
"""``--dry-run``: what a pass would evict from each directory, and by which budget, without touching anything.

Keeps one promise: no file and no directory is made, changed or removed, not even the policy, and no lock is taken. So
it works next to a running daemon, and on directories that may only be read. Budgets are applied in the order of a tick:
each directory's own, then the total, then ``--min-free``, each on what the budgets before it would have left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from lockcache.filestream.eviction import Need, first_enough
from lockcache.lowlevel import Evicted, Found, Goal, Slot, StatedPolicy, check_directory, choose_victims
from lockcache_daemon.budgets.choose import Room
from lockcache_daemon.budgets.shared import SharedBudgets, look_at_file_system
from lockcache_daemon.observe import Report
from lockcache_daemon.settings import DirectorySettings, Exceeded, Rules, Settings, own_budgets, rules_for
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores import View, view, view_lockcache

T = TypeVar("T")


class Rehearsal:
    """One directory that evicts nothing, and from then on answers as if it had evicted.

    For its own budgets it stands in for a :class:`Store`, and for those that directories share for a keeper.

    Raises the errors of opening the directory, and :class:`Stopped`.
    """

    is_able = is_safe = True

    def __init__(self, root: str, rules: Rules, report: Report, stop: StopSignals, view: View = view_lockcache) -> None:
        self.root = root
        self.rules = rules
        self._stop = stop
        self._seen = view(root, stop)
        self.layout = self._seen.layout
        check_directory(self.layout, rules.group if view is view_lockcache else False)
        found = StatedPolicy(self.layout).load()
        self._policy = found if rules.max_size_bytes is None else rules.policy
        self.before = self._seen.measure()
        #: The evictions for each budget, in the order in which the budgets are applied.
        self.budgets: dict[str, Evicted] = {}
        #: The sizes of the entries that would be gone, by name.
        self._gone: dict[str, int] = {}

    @property
    def evicted(self) -> Evicted:
        """The entries that would go for all budgets together."""
        return Evicted(len(self._gone), sum(self._gone.values()))

    def held(self) -> Slot:
        """Returns the bytes and entries that would be left by now."""
        return Slot(self.before.bytes - self.evicted.bytes, self.before.entries - self.evicted.entries)

    def entries(self) -> Iterator[Found]:
        """Yields every whole entry that would be left by now."""
        return (found for found in self._seen.entries() if found.name not in self._gone)

    def namespaces(self) -> Mapping[str, Slot]:
        """Returns what would be left of each namespace that has a budget."""
        return {name: Slot(sum(found.size_bytes for found in own), len(own)) for name, own in self._owned().items()}

    def sweep(self, goal: Goal) -> Evicted:
        """Returns the entries that a store's sweep would evict."""
        surplus = goal.surplus(self.held())
        if surplus == (0, 0):
            return Evicted()
        gone = self.evicted
        need = Need(surplus.bytes + gone.bytes, surplus.entries + gone.entries)
        victims = self._seen.victims(need, self.rules.priority_under(self._policy))
        ordered = (found for found in victims if found.name not in self._gone)
        return self.remove(first_enough(list(ordered), Need(*surplus)).victims)

    def sweep_namespace(self, name: str, low_bytes: int) -> Evicted:
        """Returns the entries that a store's sweep of one namespace would evict."""
        own = self._owned()[name]
        surplus_bytes = sum(found.size_bytes for found in own) - low_bytes
        return self.remove(choose_victims(own, surplus_bytes))

    def remove(self, victims: list[Found]) -> Evicted:
        """Count ``victims`` as gone. Returns how many and how large they are."""
        self._gone.update((found.name, found.size_bytes) for found in victims)
        return Evicted(len(victims), sum(found.size_bytes for found in victims))

    def apply_own(self) -> None:
        """Apply the directory's own budgets."""
        for exceeded in own_budgets(self.rules, self._policy, self):
            self._evict(exceeded)

    def attempt(self, step: Callable[[], T]) -> T | None:
        """Take a step of a budget that directories share. Returns its result. Raises the errors of ``step``."""
        return step()

    def sweep_for(self, budget: str, goal: Goal) -> Evicted:
        """Returns the entries that would go for a budget that directories share."""
        return self._evict(Exceeded(budget, partial(self.sweep, goal)))

    def _evict(self, exceeded: Exceeded) -> Evicted:
        self._stop.raise_if_set()
        evicted = exceeded.evict()
        if evicted.entries:
            self.budgets[exceeded.budget] = evicted
        return evicted

    def _owned(self) -> dict[str, list[Found]]:
        """Returns the entries that would be left of each namespace that has a budget."""
        budgeted, owned = dict(self.rules.namespaces), dict[str, list[Found]]()
        for found in self.entries():
            name = self._seen.namespace_of(found)
            if name in budgeted:
                owned.setdefault(name, []).append(found)
        return owned


def rehearse_all(settings: Settings, layouts: Mapping[str, str], report: Report, stop: StopSignals) -> None:
    """Report what would be evicted from each directory; ``layouts`` by path.

    Raises the errors of opening one of them, and :class:`Stopped`.
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
    """Returns what would be free by now on the file system of ``path``."""
    room, device = look_at_file_system(path), os.stat(path).st_dev
    freed = [each.evicted for each in seen if os.stat(each.root).st_dev == device]
    return room._replace(
        free_bytes=room.free_bytes + sum(each.bytes for each in freed),
        free_inodes=room.free_inodes + sum(each.entries for each in freed),
    )

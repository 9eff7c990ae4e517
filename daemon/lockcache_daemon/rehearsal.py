"""``--dry-run``: what a pass would evict, without touching anything.

Keeps one promise: no file and no directory is made, changed or removed, not even the policy, and no lock is taken. So
it works beside a running daemon, and on directories that may only be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from lockcache.errors import PolicyError
from lockcache.filestream.choosing import Need, first_enough
from lockcache.filestream.directory import check_directory
from lockcache.filestream.eviction import Evicted, all_entries, choose_of_all, choose_victims
from lockcache.filestream.layout import SHARDS, Layout
from lockcache.filestream.policy import Policy, PolicyFile
from lockcache.filestream.priority import Priority
from lockcache.filestream.scan import Found, measure_shard
from lockcache.filestream.usage import Slot
from lockcache.integrations.pyptx_files import guest_layout
from lockcache.integrations.pyptx_scan import scan
from lockcache.integrations.pyptx_staged import staged_bytes
from lockcache_daemon import tree_files, triton_files
from lockcache_daemon.files import measure
from lockcache_daemon.report import Report
from lockcache_daemon.rules import Bite, Rules
from lockcache_daemon.signals import StopSignals

__all__ = ["Rehearsal", "View", "view_files", "view_lockcache", "view_pyptx", "view_triton"]


class Seen(NamedTuple):
    """A directory, as one may look at it without opening it."""

    layout: Layout
    measure: Callable[[], Slot]
    victims: Callable[[Need, Priority], list[Found]]
    #: The whole ones.
    entries: Callable[[], Iterable[Found]]


#: Of a root. What is seen raises :class:`Stopped`.
View = Callable[[str, StopSignals], Seen]


def view_lockcache(root: str, stop: StopSignals) -> Seen:
    """lockcache's own layout, and cuda.core's."""
    layout = Layout(root)
    return Seen(
        layout,
        lambda: _measure(layout, stop),
        lambda need, priority: choose_of_all(layout, need, stop.is_set, priority),
        lambda: all_entries(layout, stop.is_set),
    )


def view_pyptx(root: str, stop: StopSignals) -> Seen:
    """pyptx's layout."""
    return _view_guest(root, lambda: scan(root, stop.raise_if_set))


def view_triton(root: str, stop: StopSignals) -> Seen:
    """Triton's layout."""
    return _view_guest(root, lambda: triton_files.view_entries(root, stop.raise_if_set))


def view_files(root: str, stop: StopSignals) -> Seen:
    """Any tree of files. Looking raises :class:`NotACacheError` for one that is no cache."""
    return _view_guest(root, lambda: tree_files.view_entries(root, stop.raise_if_set))


def _view_guest(root: str, entries: Callable[[], Iterable[Found]]) -> Seen:
    layout = guest_layout(root)
    return Seen(
        layout,
        lambda: measure(entries(), staged_bytes(layout.tmp)).slot,
        # Whatever the priority: nobody records there what compiling cost.
        lambda need, _: choose_victims(_whole(entries()), need.bytes, 0, need.entries)[0],
        lambda: _whole(entries()),
    )


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
        bite = self.rules.bite(self._policy, self.held)
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


def _whole(entries: Iterable[Found]) -> Iterable[Found]:
    return (found for found in entries if found.inode)


def _measure(layout: Layout, stop: StopSignals) -> Slot:
    held = Slot(0, 0)
    for shard in range(SHARDS):
        stop.raise_if_set()
        slot = measure_shard(layout, shard)
        held = Slot(held.bytes + slot.bytes, held.entries + slot.entries)
    return held

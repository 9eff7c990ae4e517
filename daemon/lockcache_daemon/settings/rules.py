# SPDX-License-Identifier: Apache-2.0
"""Rules of one directory, as the operator set them, and the watermarks that follow from them.

Also lists which of a directory's own budgets are exceeded, in the order in which they are applied: for a keeper, whose
store evicts, and for a dry run, whose store does not.

A sweep begins above the high watermark and ends at the low watermark. The high watermark lies halfway between the low
watermark and the limit: writers that fill the upper half of that span within one tick are rare, and they make room for
themselves; and one sweep frees half the span, so that sweeps stay rare too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol

from lockcache.filestream.accounting import space_of
from lockcache.filestream.disk import Space
from lockcache.layouts import SETTLE_SECONDS
from lockcache.lowlevel import Evicted, Found, Goal, Layout, Policy, Priority, Slot
from lockcache.sizes import format_size
from lockcache_daemon.settings.model import DirectorySettings, Settings
from lockcache_daemon.settings.values import Free


class Watermarks(NamedTuple):
    """The bytes at which a sweep ends, and above which it begins."""

    low_bytes: int
    high_bytes: int


@dataclass(frozen=True)
class Rules:
    """The settings of one daemon for one directory. ``None``: no such budget."""

    max_size_bytes: int | None = None
    #: Where a sweep ends, as a share of the limit.
    low_share: float = 0.9
    interval_seconds: float = 0.5
    max_entries: int | None = None
    min_free: Free | None = None
    max_age_seconds: float | None = None
    #: The bytes that entries of each namespace may add up to, by name.
    namespaces: tuple[tuple[str, int], ...] = ()
    floor_bytes: int = 0
    #: In directories of other programs: entries that changed so recently stay.
    settle_seconds: float = SETTLE_SECONDS
    #: Which entries go first.
    priority: Priority = Policy.priority
    #: The setting that :attr:`max_size_bytes` is from.
    cap_budget: str = "max-size"
    #: The group that shares a directory of lockcache's own layout; see :mod:`lockcache.filestream.disk.permissions`.
    group: bool | str = False
    #: The bytes that all directories of the daemon may hold together.
    total_bytes: int | None = None
    #: The layout, as the operator named it.
    layout: str = "auto"
    #: Whether to wait for a directory that another daemon keeps.
    standby: bool = False
    #: This directory's part of what an idle daemon may cost.
    share_of_duty: float = 1.0

    def pace(self, duty: float) -> tuple[float, float]:
        """Returns the arguments of a throttle for idle work: this directory's part of ``duty``, and a tick's time."""
        return duty * self.share_of_duty, self.interval_seconds

    @property
    def policy(self) -> Policy:
        """The policy for the directory. It is an operator's, so that no program's ``max_size_bytes`` replaces it."""
        return Policy(self.max_size_bytes, by_operator=self.max_size_bytes is not None, priority=self.priority)

    def priority_under(self, policy: Policy) -> Priority:
        """Returns the priority under the directory's policy: an operator's, else of these rules.

        Also the directory's where these rules state neither a cap nor a priority: both are then the directory's.
        """
        is_directorys = policy.by_operator if self.max_size_bytes is not None else self.priority == Policy.priority
        return policy.priority if is_directorys else self.priority

    def more_in_words(self) -> str:
        """Returns the budgets apart from the cap, each after a comma: ``, max-age 30d, min-free 5%``."""
        entries, age, free = self.max_entries, self.max_age_seconds, self.min_free
        budgets = {
            "max-entries": "" if entries is None else str(entries),
            "max-age": "" if age is None else _duration(age),
            "min-free": "" if free is None else str(free),
        }
        budgets |= {f"namespace {name}": format_size(size) for name, size in self.namespaces}
        if self.total_bytes is not None:
            budgets["total"] = format_size(self.total_bytes)
        return "".join(f", {name} {text}" for name, text in budgets.items() if text)

    def watermarks(self, policy: Policy, space: Space) -> Watermarks | None:
        """Returns the watermarks of a directory; ``None`` where its policy sets no cap."""
        limit = policy.entries_limit_bytes(space)
        return None if limit is None else Watermarks(*self.marks(limit))

    def marks(self, limit: int) -> tuple[int, int]:
        """Returns the low and the high watermark under any limit."""
        low = int(limit * self.low_share)
        return low, (low + limit) // 2

    def over(self, held: Mapping[str, Slot]) -> Iterator[tuple[str, int]]:
        """Yields the namespaces that hold more than they may, and the bytes at which a sweep of each ends."""
        for name, limit in self.namespaces:
            low, high = self.marks(limit)
            if name in held and held[name].bytes > high:
                yield name, low

    def excess(self, policy: Policy, space: Space, held: Slot) -> tuple[str, Goal] | None:
        """Returns the directory's own budget that is exceeded, if one is (with both names if two are), and the goal."""
        budgets, limit_bytes, limit_entries = [], None, None
        marks = self.watermarks(policy, space)
        if marks is not None and held.bytes > marks.high_bytes:
            budgets.append(self.cap_budget)
            limit_bytes = marks.low_bytes
        if self.max_entries is not None:
            low, high = self.marks(self.max_entries)
            if held.entries > high:
                budgets.append("max-entries")
                limit_entries = low
        return (", ".join(budgets), Goal(limit_bytes, limit_entries)) if budgets else None


class Evictor(Protocol):
    """The methods of an open directory that budgets need: of stores, and of the dry run."""

    @property
    def layout(self) -> Layout: ...
    def held(self) -> Slot: ...
    def namespaces(self) -> Mapping[str, Slot]: ...
    def entries(self) -> Iterator[Found]: ...
    def sweep(self, goal: Goal) -> Evicted: ...
    def sweep_namespace(self, name: str, low_bytes: int) -> Evicted: ...
    def remove(self, victims: list[Found]) -> Evicted: ...


class Exceeded(NamedTuple):
    """A budget that is exceeded, and the function that evicts for it."""

    #: The budget's flag, without the dashes.
    budget: str
    evict: Callable[[], Evicted]


def own_budgets(rules: Rules, policy: Policy, store: Evictor) -> Iterator[Exceeded]:
    """Returns the exceeded budgets, each found when its turn comes. Raises :class:`OSError`."""
    return chain(of_size(rules, policy, store), of_namespaces(rules, store), of_age(rules, store))


def of_size(rules: Rules, policy: Policy, store: Evictor) -> Iterator[Exceeded]:
    """Yields the budget of bytes or entries, or both as one, if it is exceeded."""
    excess = rules.excess(policy, space_of(store.layout), store.held())
    if excess is not None:
        budget, goal = excess
        yield Exceeded(budget, partial(store.sweep, goal))


def of_namespaces(rules: Rules, store: Evictor) -> Iterator[Exceeded]:
    """Yields the budget of each namespace that holds too much."""
    if rules.namespaces:
        for name, low in rules.over(store.namespaces()):
            yield Exceeded(f"namespace {name}", partial(store.sweep_namespace, name, low))


def of_age(rules: Rules, store: Evictor) -> Iterator[Exceeded]:
    """Yields the budget of age if any entry is too old. Looks at every entry."""
    if rules.max_age_seconds is not None:
        before_ns = time.time_ns() - int(rules.max_age_seconds * 1e9)
        old = [found for found in store.entries() if found.last_use_ns < before_ns]
        if old:
            yield Exceeded("max-age", partial(store.remove, old))


def _duration(seconds: float) -> str:
    for unit_seconds, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds % unit_seconds == 0:
            return f"{seconds / unit_seconds:g}{unit}"
    return f"{seconds:g}s"


def rules_for(settings: Settings, directory: DirectorySettings) -> Rules:
    """Returns the rules of one directory under ``settings``."""
    # No directory may hold more than the total of all: so the writers of one directory alone never exceed the total.
    caps = [cap for cap in (directory.max_size, settings.total) if cap is not None]
    return Rules(
        min(caps, default=None),
        directory.low_watermark,
        settings.interval,
        max_entries=directory.max_entries,
        min_free=directory.min_free,
        max_age_seconds=directory.max_age,
        namespaces=directory.namespaces,
        floor_bytes=directory.floor or 0,
        settle_seconds=directory.settle,
        priority=directory.policy,
        cap_budget="max-size" if caps and min(caps) == directory.max_size else "total",
        group=directory.group,
        total_bytes=settings.total,
        layout=directory.layout,
        standby=settings.standby,
        share_of_duty=1 / len(settings.directories),
    )

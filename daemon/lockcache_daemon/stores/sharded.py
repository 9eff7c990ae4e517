# SPDX-License-Identifier: Apache-2.0
"""The store of lockcache's own layout, and cuda.core's: shards that writers account for.

Keeps the repair half of invariant 3 (hard cap) through :mod:`.recount_schedule`, and the repair half of invariant 5
(death is free) through reaping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from lockcache.arguments import default_cap, is_default_path
from lockcache.errors import LockTimeoutError
from lockcache.filestream import detach_if_too_large, replace_policy
from lockcache.filestream.eviction import unpinned
from lockcache.filestream.inspect import name_namespace
from lockcache.lowlevel import (
    SHARDS,
    CacheDirectory,
    Evicted,
    Found,
    Goal,
    Policy,
    Slot,
    all_entries,
    choose_victims,
    reap,
    recount_shard,
    remove_victims,
    sweep,
)
from lockcache_daemon.observe import Repairs
from lockcache_daemon.settings import Rules
from lockcache_daemon.signals import StopSignals
from lockcache_daemon.stores.namespaces import NamespaceTally
from lockcache_daemon.stores.protocol import Step
from lockcache_daemon.stores.recount_schedule import Counting
from lockcache_daemon.throttle import Throttle

# Short, because the daemon has to act on a signal within a second also while some writer hangs with a lock.
_LOCK_TIMEOUT_SECONDS: Final = 0.25

# After a sweep that found nothing to evict (all is reserved, or the accounting is far too high) the next sweep may take
# this share of the time, or the daemon would walk the directory at every tick.
_FRUITLESS_DUTY: Final = 0.25


class ShardStore:
    """An open directory of lockcache's or cuda.core's layout (a :class:`.protocol.Store`)."""

    def __init__(self, root: str, rules: Rules, stop: StopSignals) -> None:
        """Raises what :class:`CacheDirectory` raises, and :class:`Stopped`."""
        self._rules = rules
        self._stop = stop
        is_default = rules.max_size_bytes is None and is_default_path(root)
        self.directory = CacheDirectory(
            root,
            _LOCK_TIMEOUT_SECONDS,
            stop.raise_if_set,
            group=rules.group,
            first_cap_bytes=default_cap(None) if is_default else None,
        )
        self.layout = self.directory.layout
        self.policy = self.directory.policy
        self._counting = Counting(self.directory, rules, stop.raise_if_set)
        self._tally = NamespaceTally(self.layout, rules)
        self._sweeping = Throttle(_FRUITLESS_DUTY, 0.0)
        self._sweeping_namespace = Throttle(_FRUITLESS_DUTY, 0.0)
        self._was_fruitless = False
        self.busy = 0
        self.failure: OSError | None = None

    @property
    def repairs(self) -> Repairs:
        return self._counting.repairs

    def check(self) -> None:
        self.directory.check()

    def begin(self) -> None:
        """Do nothing: opening attached to the accounting."""

    def steps(self) -> Sequence[Step]:
        reap_here = partial(reap, self.directory)
        return (self._counting.tick, reap_here, lambda: self._tally.tick(self.directory.usage().slots()))

    def held(self) -> Slot:
        return self.directory.usage().total()

    def namespaces(self) -> Mapping[str, Slot]:
        return self._tally.held

    def architectures(self) -> Mapping[str, Slot]:
        return self._tally.architectures

    def sweep_namespace(self, name: str, low_bytes: int) -> Evicted:
        if not self._sweeping_namespace.is_due:
            return Evicted()
        with self._sweeping_namespace:
            # The entries that the last sweep removed may still be counted.
            self._tally.catch_up(self.directory.usage().slots(), self._stop.raise_if_set)
            surplus = max(0, self._tally.held.get(name, Slot(0, 0)).bytes - low_bytes)
            own = (found for found in self.entries() if name_namespace(self.layout, found) == name)
            return self.remove(choose_victims(own, surplus))

    def sweep(self, goal: Goal) -> Evicted:
        if self._was_fruitless and not self._sweeping.is_due:
            return Evicted()
        with self._sweeping:
            priority = self._rules.priority_under(self.directory.policy.current())
            evicted = sweep(self.directory, goal, self._stop.is_set, priority)
        self._counting.after_sweep()
        self._was_fruitless = not evicted.entries
        if self._was_fruitless:
            self._counting.distrust()
        return evicted

    def entries(self) -> Iterator[Found]:
        limit = self.directory.limit_bytes()
        return unpinned(self.layout, all_entries(self.layout, self._stop.is_set, evicts=True), limit)

    def remove(self, victims: list[Found]) -> Evicted:
        evicted = remove_victims(self.directory, victims, None, should_stop=self._stop.is_set)
        self._counting.after_sweep()
        return evicted

    def replace_policy(self, policy: Policy) -> None:
        replace_policy(self.directory, policy)

    def policy_changed(self) -> None:
        """Remove the seed where it would be more than half of the cap. The rest of the size is known at every tick."""
        detach_if_too_large(self.directory, self.directory.policy.current().max_size_bytes)

    def change(self, rules: Rules) -> None:
        self._rules = rules
        self._counting.change(rules)
        self._tally.change(rules)

    def count_all(self, advance: Callable[[], None]) -> int:
        repaired = self.busy = 0
        for shard in range(SHARDS):
            self._stop.raise_if_set()
            try:
                repair = recount_shard(self.directory, shard, between=self._stop.raise_if_set)
                if repair.before != repair.after:
                    repaired += 1
                    self._counting.note(repair)
            except LockTimeoutError:
                self.busy += 1
            advance()
        reap(self.directory)
        if self._rules.namespaces:
            self._tally.catch_up(self.directory.usage().slots(), self._stop.raise_if_set)
        return repaired

    def count_again(self) -> None:
        """Do nothing: a sweep accounts for what it removes."""

    def remake(self) -> None:
        self.directory.close()
        self.directory.remake()

    def close(self) -> None:
        self.directory.close()

# SPDX-License-Identifier: Apache-2.0
"""Bytes and entries by namespace and by architecture, counted again in each shard whose accounting changed.

Keeps an idle daemon's cost bounded: a shard's records are read (20 us each) when its slot differs from the slot at the
last count, and else one shard after the other, for a thousandth of a core; where namespaces have budgets, for a tenth.
Keeps memory bounded whatever programs call themselves: beyond fifty names the smallest are counted as :data:`OTHER`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final

from lockcache.filestream.inspect import Sums, add_sums, sum_up
from lockcache.lowlevel import SHARDS, Layout, Slot
from lockcache_daemon.settings import Rules
from lockcache_daemon.throttle import Throttle

#: All namespaces beyond the fifty. No budget can have this name.
OTHER: Final = "(other)"

_IDLE_DUTY: Final = 0.0005
_BUDGET_DUTY: Final = 0.1
_IDLE_SLICE_SECONDS: Final = 0.002
_BUDGET_SLICE_SECONDS: Final = 0.05
_MOST_NAMES: Final = 50


class NamespaceTally:
    """Counts the namespaces and architectures of one directory, a slice at each :meth:`tick`."""

    def __init__(self, layout: Layout, rules: Rules) -> None:
        self._layout = layout
        self._throttle = Throttle(0.0, 0.0)
        self.change(rules)
        self._slots: list[Slot | None] = [None] * SHARDS
        self._counted = [Sums({}, {})] * SHARDS
        self._next = 0
        #: By name, the largest first. Replaced as a whole.
        self.held: dict[str, Slot] = {}
        #: By architecture, the largest first. Replaced as a whole.
        self.architectures: dict[str, Slot] = {}

    def change(self, rules: Rules) -> None:
        """Use other settings from the next tick on."""
        self._budgeted = {name for name, _ in rules.namespaces}
        self._throttle.change(*rules.pace(_BUDGET_DUTY if self._budgeted else _IDLE_DUTY))

    def tick(self, slots: Sequence[Slot]) -> None:
        """Count some shards, if it is due. ``slots``: the accounting as it stands. Raises :class:`OSError`."""
        if not self._throttle.is_due:
            return
        with self._throttle:
            until = time.perf_counter() + (_BUDGET_SLICE_SECONDS if self._budgeted else _IDLE_SLICE_SECONDS)
            in_turn = [*range(self._next, SHARDS), *range(self._next)]
            changed = [shard for shard in in_turn if slots[shard] != self._slots[shard]]
            for shard in changed or in_turn[:1]:
                self._count(shard, slots[shard])
                if time.perf_counter() >= until:
                    break
            self._join()

    def catch_up(self, slots: Sequence[Slot], between: Callable[[], object]) -> None:
        """Count all shards that changed, now."""
        for shard in range(SHARDS):
            between()
            if slots[shard] != self._slots[shard]:
                self._count(shard, slots[shard])
        self._join()

    def _count(self, shard: int, slot: Slot) -> None:
        self._counted[shard] = sum_up(self._layout, shard)
        self._slots[shard] = slot
        self._next = (shard + 1) % SHARDS

    def _join(self) -> None:
        self.held = _joined([counted.namespaces for counted in self._counted], self._budgeted)
        self.architectures = _joined([counted.architectures for counted in self._counted], frozenset())


def _joined(parts: Iterable[dict[str, Slot]], kept: Set[str]) -> dict[str, Slot]:
    """Returns the sums of all parts, the largest first, with the smallest as one beyond fifty, but those ``kept``."""
    all_of_them: dict[str, Slot] = {}
    for part in parts:
        add_sums(all_of_them, part)
    names = sorted(all_of_them, key=lambda name: (name not in kept, -all_of_them[name].bytes))
    held: dict[str, Slot] = {}
    for number, name in enumerate(names):
        is_shown = number < _MOST_NAMES or name in kept
        add_sums(held, {name if is_shown else OTHER: all_of_them[name]})
    return dict(sorted(held.items(), key=lambda each: -each[1].bytes))

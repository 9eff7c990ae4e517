# SPDX-License-Identifier: Apache-2.0
"""The protocol of the stores, which the keeper uses.

Decides what a layout does (measure its size, remove entries) and so what it does not: budgets, policy, status, errors
and their order are the keeper's, for every layout alike. A walk uses :class:`lockcache.layouts.Files` for a layout of
another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lockcache.lowlevel import Evicted, Found, Goal, Layout, Policy, Slot, StatedPolicy
from lockcache_daemon.observe import Repairs, Report
from lockcache_daemon.settings import Rules
from lockcache_daemon.signals import StopSignals

#: One step of a tick. May raise :class:`OSError`, :class:`LockcacheError` and :class:`Stopped`.
Step = Callable[[], object]


class Store(Protocol):
    """One directory of some layout, open."""

    @property
    def busy(self) -> int:
        """The number of locks that kept the last complete count or sweep from a part of its work."""

    @property
    def failure(self) -> OSError | None:
        """The error that kept the last sweep from an entry, but not from the others."""

    @property
    def layout(self) -> Layout:
        """The layout that says where the daemon's own files are."""

    @property
    def policy(self) -> StatedPolicy:
        """The directory's policy."""

    @property
    def repairs(self) -> Repairs:
        """The repairs of the accounting since the store was opened. Empty where programs do not account."""

    def check(self) -> None:
        """Raise the errors of opening it now, above all :class:`UnsafeCacheDirError`. Changes nothing."""

    def begin(self) -> None:
        """Find out what has to be known before the first tick."""

    def steps(self) -> Sequence[Step]:
        """Returns the steps of a tick that measure the size, in their order. Budgets come after them."""

    def held(self) -> Slot:
        """Returns what the directory holds, as far as is known now. Cheap."""

    def namespaces(self) -> Mapping[str, Slot]:
        """Returns what it holds by namespace, as far as is known now; empty where entries state none. Cheap."""

    def architectures(self) -> Mapping[str, Slot]:
        """Returns what it holds by architecture, as :meth:`namespaces` does. Cheap."""

    def sweep_namespace(self, name: str, low_bytes: int) -> Evicted:
        """Evict entries of one namespace until they add up to ``low_bytes``, the least recently used first."""

    def sweep(self, goal: Goal) -> Evicted:
        """Evict down to ``goal``, in the order of the priority; nothing while that would repeat a fruitless sweep."""

    def entries(self) -> Iterator[Found]:
        """Returns every whole entry, in no order. Raises :class:`OSError` and :class:`Stopped`."""

    def remove(self, victims: list[Found]) -> Evicted:
        """Remove the ``victims`` that were not used since they were found."""

    def replace_policy(self, policy: Policy) -> None:
        """Publish a policy for every process. Raises :class:`OSError`."""

    def policy_changed(self) -> None:
        """Follow a cap that changed."""

    def change(self, rules: Rules) -> None:
        """Use other settings from now on."""

    def count_all(self, advance: Callable[[], None]) -> int:
        """Count everything, calling ``advance`` ``SHARDS`` times. Returns how many shards had wrong accounting."""

    def count_again(self) -> None:
        """Measure the size again, after a sweep in a complete pass."""

    def remake(self) -> None:
        """Make missing directories again: an error may have left something half usable."""

    def close(self) -> None:
        """Close what is open. Raises nothing."""


class KeptDirectory(NamedTuple):
    """A directory that is being kept, as parts of the keeper and the one pass see it."""

    root: str
    store: Store
    rules: Rules
    report: Report
    stop: StopSignals


#: Opens a directory. Raises what is wrong with it, and :class:`Stopped`.
OpenStore = Callable[[str, Rules, StopSignals], Store]


class Part(Protocol):
    """Other work for a directory while it is open: the last steps of a tick before the status."""

    def tick(self) -> None:
        """Do what is due. An error counts as the directory's, like that of a step."""

    def status_fields(self) -> Mapping[str, Any]:
        """Returns its fields of ``daemon.json`` as they last changed: changes are written at most every few seconds."""

    def close(self) -> None:
        """Close the part, when the directory is closed. Raises nothing."""


#: Makes a part each time that a directory is opened; ``None``: there is none for this directory.
MakePart = Callable[[KeptDirectory], Part | None]

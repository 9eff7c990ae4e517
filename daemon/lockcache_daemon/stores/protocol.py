"""The protocol of the stores: what the keeper needs of one.

Decides what is the layout's business (knowing its size, removing entries) and so what is not: budgets, policy, status,
errors and their order are the keeper's, for every layout alike. What a walk needs of another program's layout is
:class:`lockcache.layouts.Files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lockcache.lowlevel import Evicted, Found, Goal, Layout, PolicyFile, Slot
from lockcache_daemon.observe import Repairs, Report
from lockcache_daemon.settings import Rules
from lockcache_daemon.signals import StopSignals

#: Something that is due at a tick. May raise :class:`OSError`, :class:`LockcacheError` and :class:`Stopped`.
Step = Callable[[], object]


class Store(Protocol):
    """One directory of some layout, open."""

    @property
    def busy(self) -> int:
        """Locks that the last complete look or sweep found taken, so that it did not do all of its work."""

    @property
    def failure(self) -> OSError | None:
        """What kept the last sweep from an entry, but not from the others."""

    @property
    def layout(self) -> Layout:
        """Where the daemon's own files are."""

    @property
    def policy(self) -> PolicyFile:
        """The directory's policy."""

    @property
    def repairs(self) -> Repairs:
        """What was set right since it was opened. None where nobody accounts."""

    def check(self) -> None:
        """Raise what opening it now would raise, above all :class:`UnsafeCacheDirError`. Changes nothing."""

    def begin(self) -> None:
        """What has to be known before the first tick."""

    def steps(self) -> Sequence[Step]:
        """What a tick does to know its size, in this order, before budgets are looked at."""

    def held(self) -> Slot:
        """What it holds, as far as is known now. Cheap."""

    def namespaces(self) -> Mapping[str, Slot]:
        """What it holds by namespace, as far as is known now; nothing where entries state none. Cheap."""

    def sweep_namespace(self, name: str, low_bytes: int) -> Evicted:
        """Evict entries of one namespace until they are ``low_bytes``, the least recently used first."""

    def sweep(self, goal: Goal) -> Evicted:
        """Evict down to ``goal``, the first in line first. Nothing while it would only repeat a fruitless one."""

    def entries(self) -> Iterator[Found]:
        """Every whole entry, in no order. Raises :class:`OSError` and :class:`Stopped`."""

    def remove(self, victims: list[Found]) -> Evicted:
        """Remove those of ``victims`` that nobody used since they were found."""

    def policy_changed(self) -> None:
        """Another cap is in force."""

    def change(self, rules: Rules, share_of_duty: float) -> None:
        """Other settings are in force."""

    def count_all(self, advance: Callable[[], None]) -> int:
        """Look at everything, calling ``advance`` ``SHARDS`` times; how many shards had been accounted for wrongly."""

    def count_again(self) -> None:
        """After a sweep in a complete pass: know the size again."""

    def remake(self) -> None:
        """Make again what is missing of the directories: an error may have left something half usable."""

    def close(self) -> None:
        """Close what is open. Raises nothing."""


class KeptDirectory(NamedTuple):
    """A directory that is being kept, for whatever else is done for it."""

    root: str
    store: Store
    rules: Rules
    report: Report
    stop: StopSignals
    #: This directory's part of what an idle daemon may cost.
    share_of_duty: float


#: Of a root. Raises what is wrong with it, and :class:`Stopped`.
OpenStore = Callable[["Opening"], Store]


class Opening(NamedTuple):
    """What a store is opened with."""

    root: str
    rules: Rules
    stop: StopSignals
    share_of_duty: float


class Part(Protocol):
    """Something else that is done for a directory while it is open: a tick's last step but for the status."""

    def tick(self) -> None:
        """Everything that is due. An error is the directory's, as one of its own steps'."""

    def close(self) -> None:
        """The directory is being closed. Raises nothing."""


@runtime_checkable
class HasStatusFields(Protocol):
    """A part that has something to say in ``daemon.json``."""

    def status_fields(self) -> Mapping[str, Any]:
        """Its fields, as they were when they last changed: what differs is written, at most every few seconds."""


#: Makes a part, if there is one to make, each time that a directory is opened.
MakePart = Callable[[KeptDirectory], Part | None]

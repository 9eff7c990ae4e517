"""Protocols of the stores: what the keeper needs of a store, and what a walk needs of another program's layout.

Decides what is the layout's business (knowing its size, removing entries) and so what is not: budgets, policy, status,
errors and their order are the keeper's, for every layout alike. Of another program's layout an evictor may see entries,
each as one unit whatever files it has, and a locked removal of one: see :mod:`.layouts`, :mod:`.triton` and
:mod:`.tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lockcache.lowlevel import Evicted, Found, Goal, Layout, PolicyFile, Slot
from lockcache_daemon.observe import Repairs, Report
from lockcache_daemon.settings import Rules
from lockcache_daemon.signals import StopSignals

__all__ = [
    "Files",
    "Held",
    "Kept",
    "MakePart",
    "OpenStore",
    "Opening",
    "Part",
    "Step",
    "Store",
    "Telling",
    "measure",
]

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


class Kept(NamedTuple):
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
class Telling(Protocol):
    """A part that has something to say in ``daemon.json``."""

    def tell(self) -> Mapping[str, Any]:
        """Its fields, as they were when they last changed: what differs is written, at most every few seconds."""


#: Makes a part, each time that a directory is opened.
MakePart = Callable[[Kept], Part]


class Files(Protocol):
    """What a layout has to offer. ``inode`` is 0 in a :class:`Found` that is not a whole entry."""

    #: What changed so recently may not be evicted.
    settle_seconds: float

    @property
    def layout(self) -> Layout:
        """Where the daemon's own files go."""

    @property
    def is_pending(self) -> bool:
        """Whether entries that were evicted are still on the disk, and :meth:`finish` has work to do."""

    def prepare(self) -> None:
        """Make what is missing of the directories."""

    def glance(self) -> object:
        """Cheap, and unequal to the last one where something changed, as far as one can tell without a walk."""

    def scan(self, between: Callable[[], object] = ...) -> Iterator[Found]:
        """Every entry, and what is left of any. ``between`` is called often, and may raise to give up."""

    def staged_bytes(self) -> int:
        """Bytes of what is being written."""

    def evict(self, found: Found) -> bool:
        """Remove all of an entry if it is as it was found. Raises :class:`LockTimeoutError` where it is locked."""

    def finish(self) -> bool:
        """Go on with what :meth:`evict` began; whether anything was removed. Raises :class:`OSError`."""

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead writers left staged, and of these names, if they are not entries."""

    def close(self) -> None:
        """Close what is open."""


class Held(NamedTuple):
    """What one walk found."""

    #: Bytes of everything, and the number of whole entries.
    slot: Slot
    #: Names that are not whole entries.
    halves: list[str]


def measure(found: Iterable[Found], staged_bytes: int) -> Held:
    """What a walk adds up to."""
    total_bytes, entries = staged_bytes, 0
    halves = []
    for each in found:
        total_bytes += each.size_bytes
        if each.inode:
            entries += 1
        else:
            halves.append(each.name)
    return Held(Slot(total_bytes, entries), halves)

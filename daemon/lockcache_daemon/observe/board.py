# SPDX-License-Identifier: Apache-2.0
"""The board: the state of the daemon and its directories, written by the thread that works, read by any other.

Keeps readers (a scrape, the status page, a metrics file) from ever holding up the work: views are immutable and
replaced as a whole, readers take no lock, and nothing here touches the disk. Keeps memory bounded: an hour of samples
for each directory, and no list that grows with the entries.

Its source are the events of the daemon: :class:`.log.Report` gives each event to the board before logging it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from lockcache.lowlevel import Counters, Evicted, Policy, Repair, Slot
from lockcache.remote import ServerSeen
from lockcache_daemon.observe.history import Sample, recorded
from lockcache_daemon.observe.top_entries import StandoutsSeen
from lockcache_daemon.settings import Watermarks

#: Upper bounds of the sweep duration histogram. A sweep of 10,000 entries takes a second, one of a million a minute.
SWEEP_BUCKETS_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

# After so long without progress a step hangs. Progress is reported at every tick, every few seconds between ticks that
# are far apart, and between shards and lock holds: so a long sweep or a first count does not count as hanging.
_LATE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Sweep:
    """One sweep of one directory."""

    before_bytes: int
    after_bytes: int
    evicted_entries: int
    evicted_bytes: int
    milliseconds: float
    #: The flag of the budget that was exceeded, without the dashes.
    budget: str = "max-size"


class Repairs(NamedTuple):
    """Repairs of accounting that was wrong."""

    shards: int = 0
    #: The bytes by which the accounting was wrong, in either direction.
    drift_bytes: int = 0
    #: Of those, the bytes on disk that were not accounted for; the rest was accounted for and not on disk.
    missing_bytes: int = 0
    #: Entries, in either direction.
    drift_entries: int = 0

    def plus(self, repair: Repair) -> Repairs:
        drift_bytes = repair.drift_bytes
        return Repairs(
            self.shards + 1,
            self.drift_bytes + abs(drift_bytes),
            self.missing_bytes + max(0, -drift_bytes),
            self.drift_entries + abs(repair.before.entries - repair.after.entries),
        )

    def since(self, before: Repairs) -> Repairs:
        return Repairs(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True)
class Summary:
    """One complete pass over one directory."""

    before: Slot
    after: Slot
    #: Shards whose accounting was wrong.
    repaired_shards: int
    #: Shards that stayed locked by others, and so were not counted.
    busy_shards: int
    evicted: Evicted
    #: How wrong the accounting was.
    repairs: Repairs = Repairs()  # noqa: RUF009 (immutable)


@dataclass(frozen=True)
class Limits:
    """The limits of a directory now; ``None``: no such limit."""

    max_size_bytes: int | None = None
    max_entries: int | None = None
    low_bytes: int | None = None
    high_bytes: int | None = None
    #: In words: a share, or a size.
    min_free: str | None = None
    max_age_seconds: float | None = None
    #: By namespace, in bytes.
    namespaces: Mapping[str, int] = field(default_factory=dict)
    #: The limit of all directories together.
    total_bytes: int | None = None


@dataclass(frozen=True)
class DirectoryView:
    """One directory, as it was at the last tick."""

    root: str
    layout: str = "lockcache"
    is_open: bool = False
    #: Another daemon keeps it, and we wait to take over.
    is_standby: bool = False
    bytes: int = 0
    entries: int = 0
    limits: Limits = field(default_factory=Limits)
    sweeps: int = 0
    evicted_entries: int = 0
    evicted_bytes: int = 0
    #: One count for each of :data:`SWEEP_BUCKETS_SECONDS`, and one for what took longer. Not cumulative.
    sweep_seconds: tuple[int, ...] = (0,) * (len(SWEEP_BUCKETS_SECONDS) + 1)
    sweep_seconds_sum: float = 0.0
    #: When the last sweep ended, in seconds since the epoch; ``None``: there was no sweep.
    last_sweep: float | None = None
    #: Shards whose accounting was repaired, and the bytes by which it was wrong altogether.
    repairs: int = 0
    drift_bytes: int = 0
    #: The entries that scrubbing verified since the daemon was started, and its findings.
    scrubbed_entries: int = 0
    scrubbed_bytes: int = 0
    corrupt_entries: int = 0
    unreadable_entries: int = 0
    #: The number of failures of steps; the problem now, and since when. ``None``: no problem.
    errors: int = 0
    problem: str | None = None
    problem_since: float | None = None
    #: Whether the problem is that a step does not return.
    is_hanging: bool = False
    #: The counters of programs that use the directory.
    clients: Counters = field(default_factory=Counters)
    #: The servers that programs have behind the directory, with the counters of each.
    servers: tuple[ServerSeen, ...] = ()
    standouts: StandoutsSeen = field(default_factory=StandoutsSeen)
    #: A sample of the misses of programs that had been stored before: :mod:`.compiled_again`.
    compiled_again: int = 0
    #: Bytes and entries by namespace, the largest first.
    namespaces: Mapping[str, Slot] = field(default_factory=dict)
    #: Bytes and entries by architecture, the largest first.
    architectures: Mapping[str, Slot] = field(default_factory=dict)
    history: tuple[Sample, ...] = ()

    @property
    def state(self) -> str:
        """In a word: ``problem``, ``standby``, ``kept``, or ``opening``."""
        if self.problem is not None:
            return "problem"
        return "standby" if self.is_standby else "kept" if self.is_open else "opening"

    @property
    def is_up(self) -> bool:
        """Whether the directory is managed and nothing is wrong with it."""
        return self.is_open and self.problem is None


class Board:
    """The views of all directories. Several threads may write (warnings come from any); readers see whole updates."""

    def __init__(self) -> None:
        #: All called whenever progress is reported, by the thread that reports it.
        self.beats: list[Callable[[], object]] = []
        self.pid = os.getpid()
        self.started = time.time()
        self._views: dict[str, DirectoryView] = {}
        self._writing = threading.Lock()
        self._alive = time.monotonic()
        # Directories of which a step is being taken, with the time of their last progress (a list of one).
        self._working: dict[str, list[float]] = {}
        self.warnings = 0
        #: Whether the last reload found a mistake in the settings, so that the older ones are in force.
        self.is_reload_refused = False
        #: Set once the daemon is about to end.
        self.is_stopping = False

    # ---- for threads that work --------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Report progress (0.1 us)."""
        self._alive = time.monotonic()
        for each in tuple(self.beats):
            each()

    @contextmanager
    def at_work(self, root: str) -> Iterator[None]:
        """Returns a context for a step of one directory: while it lasts, progress of the directory is expected too."""
        outer, self._working[root] = self._working.get(root), [time.monotonic()]
        try:
            yield
        finally:
            if outer is None:
                del self._working[root]
            else:
                outer[0] = time.monotonic()
                self._working[root] = outer

    def beat_of(self, root: str) -> None:
        """Report progress of the work on one directory, which may hang while others go on."""
        working = self._working.get(root)
        if working is not None:
            working[0] = time.monotonic()  # harmless by a thread that is late: the step is over, and the list unused

    def warned(self) -> None:
        """Count a warning."""
        with self._writing:
            self.warnings += 1

    def let_go(self, root: str) -> None:
        """Remove a directory that is not kept any more."""
        with self._writing:
            self._views.pop(root, None)

    def opened(self, root: str, policy: Policy, marks: Watermarks | None, held: Slot) -> None:
        """Show a directory as kept, without a problem: a step that still fails reports its problem again."""
        low_bytes, high_bytes = marks or (None, None)

        def change(view: DirectoryView) -> DirectoryView:
            limits = replace(
                view.limits, max_size_bytes=policy.max_size_bytes, low_bytes=low_bytes, high_bytes=high_bytes
            )
            view = replace(view, bytes=held.bytes, entries=held.entries, limits=limits, is_open=True)
            return replace(view, problem=None, problem_since=None, is_standby=False)

        self._change(root, change)

    def stood_by(self, root: str) -> None:
        """Show a directory as kept by another daemon."""
        self.update(root, is_open=False, is_standby=True, problem=None, problem_since=None)

    def recovered(self, root: str) -> None:
        """Clear the problem of a directory, whose steps all work again."""
        self.update(root, problem=None, problem_since=None)

    def swept(self, root: str, sweep: Sweep) -> None:
        """Count a sweep."""
        seconds = sweep.milliseconds / 1000
        bucket = sum(seconds > bound for bound in SWEEP_BUCKETS_SECONDS)

        def change(view: DirectoryView) -> DirectoryView:
            counts = tuple(count + (number == bucket) for number, count in enumerate(view.sweep_seconds))
            done = {"evicted_entries": sweep.evicted_entries, "evicted_bytes": sweep.evicted_bytes}
            view = _plus(view, sweeps=1, sweep_seconds_sum=seconds, **done)
            return replace(view, sweep_seconds=counts, last_sweep=time.time())

        self._change(root, change)

    def summed_up(self, root: str, summary: Summary) -> None:
        """Take over the numbers of a complete pass."""
        self.update(root, bytes=summary.after.bytes, entries=summary.after.entries)
        self.add(root, repairs=summary.repaired_shards, drift_bytes=summary.repairs.drift_bytes)

    def failed(self, root: str, problem: str) -> None:
        """Count a step that failed, whether or not it was reported before."""

        def change(view: DirectoryView) -> DirectoryView:
            return replace(_plus(view, errors=1), problem=problem, problem_since=view.problem_since or time.time())

        self._change(root, change)

    def add(self, root: str, **amounts: float) -> None:
        """Add to fields of :class:`DirectoryView` that count."""
        self._change(root, lambda view: _plus(view, **amounts))

    def measured(self, root: str, held: Slot, limits: Limits) -> None:
        """Show what a directory holds at this tick."""

        def change(view: DirectoryView) -> DirectoryView:
            view = replace(view, bytes=held.bytes, entries=held.entries, limits=limits, is_open=True, is_standby=False)
            return replace(view, history=recorded(view.history, _sample(view)))

        self._change(root, change)

    def update(self, root: str, **changes: Any) -> None:
        """Change fields of :class:`DirectoryView`."""
        self._change(root, lambda view: replace(view, **changes))

    def _change(self, root: str, change: Callable[[DirectoryView], DirectoryView]) -> None:
        with self._writing:
            self._views[root] = change(self._views.get(root) or DirectoryView(root))

    # ---- for readers ------------------------------------------------------------------------------------------------

    @property
    def directories(self) -> list[DirectoryView]:
        """The views of all directories, in the order in which they came. A step that hangs is a problem of its view."""
        now = time.monotonic()
        silences = {root: now - since for root, [since] in list(self._working.items())}
        return [_as_of(view, silences.get(view.root)) for view in list(self._views.values())]

    @property
    def silent_seconds(self) -> float:
        """The seconds since progress was last reported."""
        return time.monotonic() - self._alive

    def problems(self) -> list[str]:
        """Returns the problems now, one line each; empty if there is none."""
        found = [of_directory(view.root, view.problem) for view in self.directories if view.problem is not None]
        silent = self.silent_seconds
        if silent > _LATE_SECONDS and not any(view.is_hanging for view in self.directories):
            found.insert(0, f"the daemon: {_hangs(silent)}")
        return found


def _plus(view: DirectoryView, **amounts: float) -> DirectoryView:
    changes: dict[str, Any] = {name: getattr(view, name) + amount for name, amount in amounts.items()}
    return replace(view, **changes)


def _as_of(view: DirectoryView, silent_seconds: float | None) -> DirectoryView:
    if silent_seconds is None or silent_seconds <= _LATE_SECONDS:
        return view
    return replace(view, is_hanging=True, problem=_hangs(silent_seconds))


def _hangs(silent_seconds: float) -> str:
    return f"no progress for {silent_seconds:.0f} s, a step hangs"


def _sample(view: DirectoryView) -> Sample:
    return Sample(
        time.time(),
        view.bytes,
        view.limits.max_size_bytes or 0,
        view.entries,
        view.evicted_bytes,
        view.evicted_entries,
        view.clients.hits,
        view.clients.misses,
    )


def shown(path: str) -> str:
    """Returns a path as text that can be encoded: a directory may be called anything."""
    return os.fsencode(path).decode(errors="backslashreplace")


def of_directory(root: str, text: str) -> str:
    """Returns ``text`` with the directory in front of it, unless ``text`` begins with its path, as some errors do."""
    return text if text.startswith((f"{root}:", f"{root} ", f"{root}/")) else f"{root}: {text}"

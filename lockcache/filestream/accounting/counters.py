"""Counters of all programs that share a directory, hits, misses and the like: one small page that they add to.

Keeps invariant 7 (never take the job down) and the cost of a hit: nothing here is on the path of a hit or a miss,
nothing raises, nothing waits but at a process's end, and then not long. Each object counts for itself, and adds what it
counted since the last time to the page: on ``stats()`` and ``close()``, when it is collected, at the interpreter's
exit, and with a put once ten seconds have passed. So a program that runs for days and only hits is reported when it
ends, or calls ``stats()``.

Kept true across fork: a child begins with nothing to add, so that what its parent counted is added by the parent alone.
Children of :mod:`multiprocessing` end by ``os._exit``, which runs no exit handlers but multiprocessing's own, so it is
also among those. Not promised: what a killed process, or one that ends by ``os._exit`` itself, had not added yet; nor
exact numbers where locks exclude nobody (invariant 6, locks coordinate). Nothing but people and dashboards may rely on
these numbers.

The page (:mod:`.page`) is of the kind ``LCcount``, holds the fields of :class:`Counters`, and has 128 bytes.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from lockcache.explain import Stated
from lockcache.filestream.accounting.misses import Miss, add_misses_locked
from lockcache.filestream.accounting.page import CountersPage, difference, total
from lockcache.filestream.accounting.run_counts import RunCounts, end_run_counts
from lockcache.filestream.accounting.summary import Summary, Totals
from lockcache.filestream.disk import Hold, Layout, Mark
from lockcache.fork import after_fork_in_child

_KIND: Final = b"LCcount"
_PAGE_BYTES: Final = 128

# A put is 60 us and more, one report 15: a thousandth of a busy writer's time, and as fresh as a dashboard needs.
_INTERVAL_NS: Final = 10 * 10**9

# A report holds the lock for some 10 us. Sized for a job of a thousand ranks that end together.
_PATIENCE_SECONDS: Final = 0.1

# The misses of one report: some 10 us each, while others wait for the page.
_MOST_NOTED: Final = 16


class Counters(NamedTuple):
    """The counts of all programs that reported, since the page was made. The names are those of ``CacheStats``."""

    hits: int = 0
    misses: int = 0
    puts: int = 0
    #: Evictions by programs, to make room; a daemon reports its own.
    evictions: int = 0
    dropped_writes: int = 0
    corrupt_entries: int = 0
    #: Among ``hits``.
    unverified_hits: int = 0
    #: How often a program added something, and when it last did, in ns since the epoch. 0: never.
    reports: int = 0
    last_report_ns: int = 0
    #: The compile times in ns, summed over hits on entries whose records state them.
    saved_ns: int = 0
    #: Among ``hits``: callers that waited until another one had compiled.
    waits: int = 0
    #: Compilations that were returned and not stored, since they cannot be cached.
    uncacheable: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """Hits of all lookups, 0 to 1; ``None`` before the first lookup was reported."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else None


_NOTHING: Final = Counters()


def _page_of(layout: Layout) -> CountersPage:
    return CountersPage(layout, layout.counters, _KIND, Counters._fields, _PAGE_BYTES)


def read_counters(layout: Layout) -> Counters:
    """Returns the counters of the page: zeros if nothing was reported, or the page cannot be read or understood."""
    return Counters._make(_page_of(layout).read())


def read_since(layout: Layout, now: Counters) -> Counters | None:
    """Returns what was counted since :func:`reset_counters`, whose time is ``last_report_ns``; ``None``: never reset.

    Returns ``None`` also if the page was made again since, and so its counters are lower than before.
    """
    since = _page_of(layout).read_since(now)
    return None if since is None else Counters._make(since)


def reset_counters(layout: Layout) -> None:
    """Begin to count again, for people: as :meth:`.page.CountersPage.reset`. Raises :class:`OSError`."""
    _page_of(layout).reset()


class Report(Protocol):
    """A report of a process for others to read, made now and then and when it ends. Raises nothing."""

    def report(self, patience_seconds: float = 0.0) -> None:
        """Report what is new, unless that would take longer."""

    def report_patiently(self) -> None:
        """Report what is new: what is not reported now is lost."""


class CountersReport:
    """Adds what one cache object counts to its directory's page. ``counts`` must not keep that object alive.

    Where the directory is only read (``is_read_only``) nothing is added: it counts for the summary of its process.
    ``page``: another one than that of :class:`Counters`, which that summary leaves out. ``along``: reports
    that are made whenever this one is. ``run``: the counts for ``lockcache run``, if that started the process.
    """

    __slots__ = (
        "__weakref__",
        "_along",
        "_began",
        "_counts",
        "_due_ns",
        "_is_of_programs",
        "_is_read_only",
        "_layout",
        "_misses",
        "_page",
        "_reported",
        "_reporting",
        "_run",
        "failures",
    )

    def __init__(
        self,
        layout: Layout,
        counts: Callable[[], tuple[int, ...]],
        *,
        is_read_only: bool = False,
        page: CountersPage | None = None,
        along: Sequence[Report | None] = (),
        run: RunCounts | None = None,
    ) -> None:
        self._layout = layout
        self._counts = counts
        self._is_read_only = is_read_only
        self._is_of_programs = page is None
        self._page = _page_of(layout) if page is None else page
        self._along = [each for each in (*along, run) if each is not None]
        self._run = run
        self._began = self._reported = self._page.nothing
        self._due_ns = time.time_ns() + _INTERVAL_NS
        self._reporting: dict[None, Mark] = {}
        #: Reports that failed. Their content is part of the next one.
        self.failures = 0
        # Misses for the ring. Of a job's first minute the last ones suffice.
        self._misses: deque[Miss] = deque(maxlen=_MOST_NOTED)
        after_fork_in_child(self)

    def note(self, miss: Miss) -> None:
        """Put a miss into the ring with the next report, if the miss states what its key was made of."""
        if miss.parts and not self._is_read_only:
            self._misses.append(miss)

    def note_put(
        self, now_ns: int, name: str, stated: Stated | None, cost_ns: int, origin: str, *, is_stored: bool
    ) -> None:
        """Report if the interval is over. Each put calls this with the time that it has anyhow: three comparisons.

        ``origin``: see :data:`lockcache.serving.unreported`.
        """
        if self._run is not None and not (origin and self._run.copied(name, cost_ns, origin)):
            self._run.compiled(name, "" if stated is None else stated.label, is_stored=is_stored)
        # The second one: the clock was set back.
        if now_ns >= self._due_ns or now_ns < self._due_ns - 2 * _INTERVAL_NS:
            self.report()

    def report(self, patience_seconds: float = 0.0) -> None:
        """Add what is new, unless another process holds the page for longer than that. Raises nothing."""
        for each in self._along:
            each.report(patience_seconds)
        if self._is_read_only:
            return
        # Does not wait: this may run in the garbage collector, in the thread that holds the lock.
        mine = Hold(self)
        if self._reporting.setdefault(None, mine.mark) is not mine.mark:
            return
        try:
            # Never less than before: a miss that became a hit since the last report is taken off the next ones.
            now = tuple(map(max, self._counts(), self._reported))
            self._due_ns = time.time_ns() + _INTERVAL_NS
            if now != self._reported:
                if self._page.add(difference(now, self._reported), patience_seconds, self._keep_misses_locked):
                    self._reported = now
                else:
                    self.failures += 1
        except OSError:
            self.failures += 1  # read-only, full, deleted, planted: the program has other things to do
        finally:
            mine.release()

    def _keep_misses_locked(self) -> None:
        """Put the misses into the ring, or drop them. Requires: the lock of the page."""
        misses = [self._misses.popleft() for _ in range(len(self._misses))]
        try:
            if misses:
                add_misses_locked(self._layout, misses)
        except OSError:
            self.failures += 1

    def counted(self) -> Counters:
        """Returns what was counted in this process; nothing for a page of another kind."""
        return Counters._make(difference(self._counts(), self._began)) if self._is_of_programs else _NOTHING

    def report_patiently(self) -> None:
        """Report like :meth:`report`, but wait longer for the lock: at the end, what is not added now is lost."""
        self.report(_PATIENCE_SECONDS)

    def give_back(self, mark: Mark) -> None:
        """Take a mark out, if it is in: see :class:`.disk.locks.Lockable`."""
        if self._reporting.get(None) is mark:
            self._reporting.pop(None)

    recover = give_back

    def _after_fork_in_child(self) -> None:
        self._reporting = {}
        self._began = self._reported = self._counts()
        self.failures = 0
        self._misses = deque(maxlen=_MOST_NOTED)
        _arm_children()


def _do_nothing() -> None:
    """Do nothing: the default of what precedes a report."""


def report_at_end(owner: object, report: Report, first: Callable[[], object] = _do_nothing) -> None:
    """Call ``report`` when ``owner`` is collected, or when this process ends, if that is sooner.

    ``first`` is called before that, and may count more. Neither may keep ``owner`` alive.
    """
    weakref.finalize(owner, _end, report, first)
    _reports.add(report)
    _arm_multiprocessing()
    _summary.arm()


_reports: weakref.WeakSet[Report] = weakref.WeakSet()


class _Ended:
    """The counts of this process's objects that were collected."""

    def __init__(self) -> None:
        self.counted = _NOTHING
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self.counted = _NOTHING


_ended = _Ended()


def _end(report: Report, first: Callable[[], object]) -> None:
    first()
    report.report_patiently()
    if report in _reports:
        _reports.discard(report)
        if isinstance(report, CountersReport):
            _ended.counted = Counters._make(total(_ended.counted, report.counted()))


def _counted_here() -> Totals:
    counted = _ended.counted
    for report in list(_reports):
        if isinstance(report, CountersReport):
            counted = Counters._make(total(counted, report.counted()))
    # Each program that was compiled was handed to a cache once.
    return Totals(counted.hits, counted.puts, counted.dropped_writes, counted.saved_ns)


_summary = Summary(_counted_here)

# In which process multiprocessing was given our exit handler (children do not inherit it), and whether it was asked to
# call us in its children (that they do inherit).
_armed_pid = 0
_is_armed_for_children = False


def _report_all(*_: object) -> None:
    for report in list(_reports):
        report.report_patiently()
    end_run_counts()
    _summary.print_once()


def _arm_multiprocessing() -> None:
    """Register with multiprocessing's exit handlers, if it is loaded: its children run no others."""
    _arm_children()
    if "multiprocessing.util" in sys.modules and _armed_pid != os.getpid():
        _arm()


def _arm_children() -> None:
    # Between the fork and the child's own code multiprocessing forgets all exit handlers, then calls the registered
    # functions.
    global _is_armed_for_children
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _is_armed_for_children:
        _is_armed_for_children = True
        util.register_after_fork(_reports, _arm)


def _arm(*_: object) -> None:
    global _armed_pid
    _armed_pid = os.getpid()
    # Last of all: other handlers may still use a cache.
    sys.modules["multiprocessing.util"].Finalize(None, _report_all, exitpriority=-1000)

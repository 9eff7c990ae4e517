# SPDX-License-Identifier: Apache-2.0
"""Counters of one cache object, added now and then to those of all programs that share its directory.

Keeps invariant 7 (never take the job down) and the cost of a hit: nothing here is on the path of a hit or a miss,
nothing raises, nothing waits but at a process's end, and then not long. Each object counts for itself, and adds what it
counted since the last time: on ``stats()`` and ``close()``, when it is collected, at the interpreter's exit
(:mod:`.process`), with a put once ten seconds have passed, and, but on network file systems, with a hit once a minute
has. Which entries were hit is added next to the numbers.

Not promised: what a killed process had not added yet; nor exact numbers where locks exclude nobody (invariant 6, locks
coordinate). Nothing but people and dashboards may rely on these numbers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from operator import add, sub
from typing import Any, Final, NamedTuple, Protocol

__all__ = ["Counters", "CountersReport", "Held", "Numbers", "difference", "total"]

# A put is 60 us and more, one report 15: a thousandth of a busy writer's time, and as fresh as a dashboard needs.
_INTERVAL_NS: Final = 10 * 10**9

# A report holds the lock for some 10 us. Sized for a job of a thousand ranks that end together.
_PATIENCE_SECONDS: Final = 0.1

# The misses of one report: some 10 us each, while others wait for the page. Of a job's first minute the last ones
# suffice.
_MOST_NOTED: Final = 16

Numbers = tuple[int, ...]


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

    def plus(self, more: Counters) -> Counters:
        return Counters._make(total(self, more))


class Held(Protocol):
    """The numbers of all programs, held by this one."""

    def add(self, delta: Numbers) -> None:
        """Add to each number. Raises :class:`OSError`."""


def _drop(_: list[tuple[Any, ...]]) -> None:
    """Drop misses: the default of what keeps them."""


class CountersReport:
    """Adds what one cache object counts to the numbers of its directory.

    ``counts`` must not keep that object alive. ``hold`` gives the numbers to add to, or raises :class:`OSError` if
    another thread or process holds them for so many seconds; ``None`` where the directory is only read, and the counts
    are for the summary of the process. ``keep``: puts misses into the ring, meanwhile. ``others``: reports that are
    made whenever this one is. ``nothing``: the zeros of another kind of counters. ``uses``: the names of entries that
    were hit, which what ``hold`` gives counts, too.
    """

    __slots__ = (
        "__weakref__",
        "_began",
        "_counts",
        "_hold",
        "_keep",
        "_misses",
        "_others",
        "_reported",
        "_uses",
        "failures",
        "quiet_ns",
    )

    def __init__(
        self,
        counts: Callable[[], Numbers],
        hold: Callable[[float], AbstractContextManager[Held]] | None,
        keep: Callable[[list[tuple[Any, ...]]], None] = _drop,
        others: Sequence[Callable[[float], None]] = (),
        nothing: Numbers = Counters(),  # noqa: B008 - a tuple
        uses: deque[str] | None = None,
    ) -> None:
        self._counts = counts
        self._hold = hold
        self._keep = keep
        self._others = others
        self._uses = uses
        self._began = self._reported = nothing
        #: The times, in ns since the epoch, at which no report is due: each put asks for its own. Before them the clock
        #: was set back.
        self.quiet_ns = range((now_ns := time.time_ns()) - _INTERVAL_NS, now_ns + _INTERVAL_NS)
        #: Reports that failed. Their content is part of the next one.
        self.failures = 0
        self._misses: deque[tuple[Any, ...]] = deque(maxlen=_MOST_NOTED)

    def note(self, miss: tuple[Any, ...]) -> None:
        """Put a miss into the ring with the next report."""
        if self._hold is not None:
            self._misses.append(miss)

    def report(self, patience_seconds: float = 0.0) -> None:
        """Add what is new, unless another process holds the page for longer than that. Raises nothing."""
        for report in self._others:
            report(patience_seconds)
        self.quiet_ns = range((now_ns := time.time_ns()) - _INTERVAL_NS, now_ns + _INTERVAL_NS)
        if self._hold is None:
            return
        try:
            if self._counts() != self._reported and self._now() != self._reported:
                # This may run in the garbage collector, in the thread that holds the lock: then it is refused.
                with self._hold(patience_seconds) as page:
                    now = self._now()
                    page.add(difference(now, self._reported))
                    self._reported = now
                    if self._misses:
                        self._keep([self._misses.popleft() for _ in range(len(self._misses))])
            if self._uses:  # also those that an earlier report could not add
                self._add_uses(self._uses, patience_seconds)
        except OSError:
            self.failures += 1  # held, read-only, full, deleted, planted: the program has other things to do

    def _add_uses(self, uses: deque[str], patience_seconds: float) -> None:
        """Add the hits to the directory's table, and forget them. Raises :class:`OSError`.

        Under a hold of its own: a thousand ranks that end together must all have added their numbers by then.
        """
        hold: Any = self._hold
        with hold(patience_seconds) as held:
            names = [uses.popleft() for _ in range(len(uses))]
            try:
                held.add_hits(names)
            except OSError:
                uses.extend(names)  # the next report adds them
                raise

    def report_patiently(self) -> None:
        """Report like :meth:`report`, but wait longer for the lock: at the end, what is not added now is lost."""
        self.report(_PATIENCE_SECONDS)

    def counted(self) -> Counters:
        """Returns what was counted in this process."""
        return Counters._make(map(sub, self._counts(), self._began))

    def restart(self) -> None:
        """Begin with nothing to add, in a forked child: what its parent counted is added by the parent alone."""
        self._began = self._reported = self._counts()
        self.failures = 0
        self._misses.clear()
        if self._uses is not None:
            self._uses.clear()

    def _now(self) -> Numbers:
        # Never less than before: a miss that became a hit since the last report is taken off the next ones.
        return tuple(map(max, self._counts(), self._reported))


def difference(now: Numbers, before: Numbers) -> Numbers:
    """Returns the difference of each number."""
    return tuple(map(sub, now, before))


def total(one: Numbers, other: Numbers) -> Numbers:
    """Returns each number added to the other's."""
    return tuple(map(add, one, other))

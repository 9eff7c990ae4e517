# SPDX-License-Identifier: Apache-2.0
"""Counts of this process for ``lockcache run``, which asks for them by ``$LOCKCACHE_RUN``.

Unlike the counters of a directory, they tell what an earlier run or another process had stored from what this process
stored itself, and count each program once for each process: a program that is looked up again, or shown as files, is
not found twice.

Keeps the cost of a hit: nothing here is called without the variable, and with it a hit makes no further system call. A
compilation is written at once, and so is a wait, which take longer anyhow; what is found is written with the next of
them, with a report of the directory's counters, and at the process's end. So a process that is killed loses hits, and
no compilation that it stored. Keeps invariant 7 (never take the job down): nothing raises.
"""

from __future__ import annotations

import contextlib
from typing import Final

from lockcache.arguments import configured_text
from lockcache.filestream.accounting.run_record import MOST_LABELS, RunPart, write_part
from lockcache.filestream.disk import Hold, Mark
from lockcache.reports import Trace, reports

__all__ = ["RunCounts", "counts_of_run", "note_own_cache"]

# Names that are remembered, some 20 MB. Of further programs the process compiles, each is counted; none is found.
_MOST_KNOWN: Final = 100_000
_MOST_REFUSALS: Final = 3
_LABEL_DIGITS: Final = 16


class RunCounts:
    """What this process counts, in the record at ``path``."""

    def __init__(self, path: str) -> None:
        self._path = path
        trace = configured_text("LOCKCACHE_TRACE")
        self._trace = Trace(trace) if trace else None
        self.restart()
        # For good: its owner is this module's.
        reports.add(self, self, first=self.end)

    def restart(self) -> None:
        """Begin with nothing to report, in a forked child."""
        # The parent's counts are the parent's to write, and what it stored is there for the child to find.
        self._offset: int | None = None
        self._has_begun = self._has_ended = False
        # By name, the cost in ns that was counted as not spent: 0 for what this process compiled.
        self._known: dict[str, int] = {}
        self._found = self._costless = self._compiled = self._not_stored = 0
        self._waits = self._waited_ns = self._not_spent_ns = 0
        self._labels: list[str] = []
        self._refusals: list[str] = []
        self._changes = self._written = 0
        self._writing: dict[None, Mark] = {}

    def begin(self) -> None:
        """Note that this process uses a cache, so that it is missed if it does not report at its end."""
        if not self._has_begun:
            self._has_begun = True
            self._changes += 1
            self.report()

    def found(self, name: str, cost_ns: int) -> None:
        """Count a hit, unless this process knows that program. ``cost_ns``: what compiling took, 0 if not known."""
        if name in self._known or len(self._known) >= _MOST_KNOWN:
            return
        self._known[name] = cost_ns
        self._found += 1
        self._costless += not cost_ns
        self._not_spent_ns += cost_ns
        self._changes += 1
        if not self._has_begun:  # a child that was forked, once
            self.begin()

    def compiled(self, name: str, label: str, cost_ns: int = 0, *, is_stored: bool) -> None:
        """Count a compilation, whose program was stored or could not be. ``cost_ns``: its time, if that is known."""
        if self._trace is not None:
            self._trace.compiled(name, label, cost_ns)
        self._has_begun = True
        if len(self._known) < _MOST_KNOWN:
            self._known.setdefault(name, 0)
        self._compiled += 1
        self._not_stored += not is_stored
        if len(self._labels) < MOST_LABELS:
            self._labels.append(label or name[:_LABEL_DIGITS])
        self._changes += 1
        self.report()

    def put(self, name: str, label: str, cost_ns: int, origin: str, *, is_stored: bool) -> None:
        """Count what a put stored, or could not. ``origin``: see :data:`lockcache.serving.unreported`."""
        if not (origin and self.copied(name, cost_ns, origin)):
            self.compiled(name, label, cost_ns, is_stored=is_stored)

    def copied(self, name: str, cost_ns: int, origin: str) -> bool:
        """Count the store of a copy, see :data:`lockcache.serving.unreported`. Returns whether none was compiled."""
        if name not in self._known and origin == "stored":
            return False
        if origin == "found":
            self.found(name, cost_ns)
        elif len(self._known) < _MOST_KNOWN:
            self._known.setdefault(name, 0)
        return True

    def compiled_in_vain(self, name: str, cost_ns: int) -> None:
        """Count a compilation whose program another process stored meanwhile, which was just taken for found."""
        if self._known.pop(name, None) is not None:
            self._found -= 1
            self._costless -= not cost_ns
            self._not_spent_ns -= cost_ns
        self.compiled(name, "", cost_ns, is_stored=True)

    def waited(self, name: str, nanoseconds: int) -> None:
        """Count that the program which was just found was waited for: that much of its cost is not counted."""
        if self._trace is not None:
            self._trace.waited(name, nanoseconds)
        self._waits += 1
        self._waited_ns += nanoseconds
        counted_ns = min(self._known.get(name, 0), nanoseconds)
        if counted_ns:
            self._known[name] -= counted_ns
            self._not_spent_ns -= counted_ns
        self._changes += 1
        self.report()

    def refused(self, refusal: str) -> None:
        """Note that a framework went on with its own cache, and why."""
        self._has_begun = True
        if len(self._refusals) < _MOST_REFUSALS:
            self._refusals.append(refusal)
            self._changes += 1
            self.report()

    def end(self) -> None:
        """Write what was counted, for the last time. Does nothing in a process that used no cache."""
        if self._has_begun and not self._has_ended:
            self._has_ended = True
            self._changes += 1
        self.report()

    def report(self, patience_seconds: float = 0.0) -> None:
        """Write what is new. Raises nothing; another thread that is writing writes this too."""
        while self._written != self._changes:
            # As for a report of counters: this may run in the garbage collector, in the thread that writes.
            mine = Hold(self)
            if self._writing.setdefault(None, mine.mark) is not mine.mark:
                return
            try:
                changes = self._changes
                self._offset = write_part(self._path, self._part(), self._offset)
                self._written = changes
            except OSError:
                return  # a full disk, a record that is gone: the program has other things to do
            finally:
                mine.release()

    def report_patiently(self) -> None:
        """Write like :meth:`end`: for reports at the end of a process."""
        self.report()

    def _part(self) -> RunPart:
        return RunPart(
            found=self._found,
            costless=self._costless,
            compiled=self._compiled,
            not_stored=self._not_stored,
            waits=self._waits,
            waited_ns=self._waited_ns,
            not_spent_ns=self._not_spent_ns,
            has_ended=self._has_ended,
            labels=tuple(self._labels),
            refusals=tuple(self._refusals),
        )

    def give_back(self, mark: Mark) -> None:
        """Take a mark out, if it is in: see :class:`.disk.locks.Lockable`."""
        if self._writing.get(None) is mark:
            self._writing.pop(None)

    recover = give_back


_counts: dict[str, RunCounts] = {}


def counts_of_run() -> RunCounts | None:
    """Returns this process's counts, if ``lockcache run`` started it; the same object for all caches."""
    path = configured_text("LOCKCACHE_RUN")
    if not path:
        return None
    found = _counts.get(path)
    if found is None:
        # In one step, for threads that come first at once.
        found = _counts.setdefault(path, RunCounts(path))
    return found


def note_own_cache(framework: str, reason: str) -> None:
    """Note for ``lockcache run`` that a framework goes on with its own cache: what it compiles is not counted."""
    with contextlib.suppress(Exception):  # a program must not fail for a line about it
        counts = counts_of_run()
        if counts is not None:
            counts.refused(f"{framework}: {reason}")

# SPDX-License-Identifier: Apache-2.0
"""The reports of this process, in one object with one exit hook and one hook of forks.

Keeps invariant 7 (never take the job down): nothing waits but at a process's end, and then not long.

Children of :mod:`multiprocessing` end by ``os._exit``, which runs no exit handlers but multiprocessing's own, so the
exit hook is also among those. Not promised: a report of a process that is killed, or ends by ``os._exit`` itself.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from lockcache.fork import after_fork_in_child
from lockcache.reports.counters import Counters
from lockcache.reports.summary import print_summary

__all__ = ["Report", "Reports", "reports"]


class Report(Protocol):
    """A report of a process for others to read. Raises nothing."""

    def report_patiently(self) -> None:
        """Report what is new: what is not reported now is lost."""

    def restart(self) -> None:
        """Begin with nothing to report, in a forked child: its parent reports what it counted."""


class _Kept(NamedTuple):
    report: Report
    #: Called before the last report, and may count more.
    first: Callable[[], object]
    #: The counts for the summary of the process.
    counted: Callable[[], Counters]


def _do_nothing() -> None:
    """Do nothing: the default of what precedes a report."""


class Reports:
    """All reports of this process."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        # The counts of this process's objects that were collected.
        self._ended = Counters()
        # The process whose summary was printed, and whose multiprocessing was given the exit hook (children do not
        # inherit it); and whether multiprocessing was asked to call us in its children (that they do inherit).
        self._printed_pid = self._armed_pid = 0
        self._is_armed_for_children = False
        after_fork_in_child(self)
        # At the first import, so that handlers which come later, and run before, may still use a cache.
        atexit.register(self.end)

    def add(
        self,
        owner: object,
        report: Report,
        *,
        first: Callable[[], object] = _do_nothing,
        counted: Callable[[], Counters] = Counters,
    ) -> None:
        """Call ``report`` when ``owner`` is collected, or when this process ends, if that is sooner.

        ``first`` is called before that, and may count more; ``counted`` is for the summary of the process. None of
        them may keep ``owner`` alive.
        """
        self._kept[id(report)] = _Kept(report, first, counted)
        weakref.finalize(owner, self._end, id(report)).atexit = False
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            self._arm_children()
            if self._armed_pid != os.getpid():
                self._arm()

    def end(self) -> None:
        """Report all that is new, and print the summary: at the end of the process."""
        for each in self._kept.copy().values():
            each.first()
            each.report.report_patiently()
        if self._printed_pid != os.getpid() and print_summary(self.counted()):
            self._printed_pid = os.getpid()

    def _end(self, number: int) -> None:
        kept = self._kept[number]
        kept.first()
        kept.report.report_patiently()
        counted = kept.counted()
        if any(counted):
            self._ended = self._ended.plus(counted)
        del self._kept[number]

    def counted(self) -> Counters:
        """Returns what all caches of this process counted in it, those that are closed or collected too."""
        counted = self._ended
        for each in self._kept.copy().values():
            counted = counted.plus(each.counted())
        return counted

    def _arm_children(self) -> None:
        # Between the fork and the child's own code multiprocessing forgets all exit handlers, then calls the registered
        # functions.
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._is_armed_for_children:
            self._is_armed_for_children = True
            util.register_after_fork(self, Reports._arm)

    def _arm(self) -> None:
        self._armed_pid = os.getpid()
        # Last of all: other handlers may still use a cache.
        sys.modules["multiprocessing.util"].Finalize(None, self.end, exitpriority=-1000)

    def _after_fork_in_child(self) -> None:
        self._ended = Counters()
        for each in self._kept.copy().values():
            each.report.restart()
        self._arm_children()


#: The one object of this process.
reports: Final = Reports()

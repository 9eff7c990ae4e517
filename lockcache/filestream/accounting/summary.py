"""Summary of a process: one line on stderr at its end, where ``LOCKCACHE_SUMMARY=1`` asks for it.

Keeps invariant 7 (never take the job down): where stderr is closed or full, there is no line. Not promised: a line of a
process that is killed or ends by ``os._exit``; children of :mod:`multiprocessing`, which do, have one all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from lockcache.arguments import is_asked_for

# The switches that explain compilations which were not kept, the strongest first.
_SWITCHES = ("LOCKCACHE_DISABLE", "LOCKCACHE_READONLY")


class Totals(NamedTuple):
    """The counts of all caches of a process."""

    hits: int
    stored: int
    #: Compiled and not stored: a write was dropped, or the cache is off or only reads.
    not_stored: int
    saved_ns: int


class Summary:
    """Prints what ``counted`` gives, once in each process that opened a cache."""

    def __init__(self, counted: Callable[[], Totals]) -> None:
        self._counted = counted
        # In which process the exit handler was registered, and in which the line was printed: a forked child inherits
        # the handler, and has a line of its own.
        self._registered_pid = self._printed_pid = 0

    def arm(self) -> None:
        """Print at the end of this process, if the variable asks for it."""
        if not self._registered_pid and is_asked_for("LOCKCACHE_SUMMARY"):
            self._registered_pid = os.getpid()
            atexit.register(self.print_once)

    def print_once(self) -> None:
        """Print the line, unless this process printed it or has nothing to say."""
        totals = self._counted()
        if self._printed_pid == os.getpid() or not is_asked_for("LOCKCACHE_SUMMARY") or not sum(totals[:3]):
            return
        self._printed_pid = os.getpid()
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"lockcache[{os.getpid()}]: {_words(totals)}\n")


def saved_in_words(hits: int, saved_ns: int) -> str:
    """Returns what hits saved, to follow their number: ", 2.5 s of compiling saved"; empty if there were no hits."""
    if not hits:
        return ""
    from lockcache.sizes import format_duration  # 3 ms, at the end of a program that asks for a summary

    if saved_ns <= 0:
        return ", compile times not recorded"
    return f", {format_duration(saved_ns / 1e9)} of compiling saved"


def _words(totals: Totals) -> str:
    from lockcache.sizes import counted  # as above

    compiled = counted(totals.stored + totals.not_stored, "compilation")
    words = f"{counted(totals.hits, 'hit')}, {compiled}{saved_in_words(totals.hits, totals.saved_ns)}"
    if not totals.not_stored:
        return words
    stored = "nothing stored" if not totals.stored else f"{totals.not_stored} of them not stored"
    switch = next((f" ({name} is set)" for name in _SWITCHES if is_asked_for(name)), "")
    return f"{words}, {stored}{switch}"

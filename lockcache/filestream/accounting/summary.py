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

# What a switch says of compilations that were not kept, the strongest first.
_SWITCHES = ("LOCKCACHE_DISABLE", "LOCKCACHE_READONLY")


class Totals(NamedTuple):
    """What all caches of a process did."""

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


def _words(totals: Totals) -> str:
    hits = "1 hit" if totals.hits == 1 else f"{totals.hits} hits"
    compilations = totals.stored + totals.not_stored
    compiled = "1 compilation" if compilations == 1 else f"{compilations} compilations"
    words = f"{hits}, {compiled}, {totals.saved_ns / 1e9:.1f} s of compiling saved"
    if not totals.not_stored:
        return words
    stored = "nothing stored" if not totals.stored else f"{totals.not_stored} of them not stored"
    switch = next((f" ({name} is set)" for name in _SWITCHES if is_asked_for(name)), "")
    return f"{words}, {stored}{switch}"

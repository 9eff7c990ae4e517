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

from lockcache.arguments import is_asked_for


class Summary:
    """Prints what ``counted`` gives, (hits, compilations, ns saved), once in each process that opened a cache."""

    def __init__(self, counted: Callable[[], tuple[int, int, int]]) -> None:
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
        hits, compilations, saved_ns = self._counted()
        if self._printed_pid == os.getpid() or not is_asked_for("LOCKCACHE_SUMMARY") or not hits + compilations:
            return
        self._printed_pid = os.getpid()
        compiled = "1 compilation" if compilations == 1 else f"{compilations} compilations"
        words = f"{hits} hit{'' if hits == 1 else 's'}, {compiled}, {saved_ns / 1e9:.1f} s of compiling saved"
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"lockcache[{os.getpid()}]: {words}\n")

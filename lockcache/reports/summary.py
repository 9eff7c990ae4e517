# SPDX-License-Identifier: Apache-2.0
"""Summary of a process: one line on stderr at its end, where ``LOCKCACHE_SUMMARY=1`` asks for it.

Keeps invariant 7 (never take the job down): where stderr is closed or full, there is no line. Not promised: a line of a
process that is killed or ends by ``os._exit``; children of :mod:`multiprocessing`, which do, have one all the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

from lockcache.arguments import is_asked_for
from lockcache.reports.counters import Counters

__all__ = ["print_summary", "saved_in_words"]

# The switches that explain compilations which were not kept, the strongest first.
_SWITCHES: Final = ("LOCKCACHE_DISABLE", "LOCKCACHE_READONLY")


def print_summary(counted: Counters) -> bool:
    """Print the line of all caches of this process, if it is asked for and says something. Returns whether it does."""
    # Each program that was compiled was handed to a cache once, which stored it or dropped the write.
    compiled = counted.puts + counted.dropped_writes
    if not (counted.hits or compiled) or not is_asked_for("LOCKCACHE_SUMMARY"):
        return False
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"lockcache[{os.getpid()}]: {_words(counted, compiled)}\n")
    return True


def saved_in_words(hits: int, saved_ns: int) -> str:
    """Returns what hits saved, to follow their number: ", 2.5 s of compiling saved"; empty if there were no hits."""
    if not hits:
        return ""
    from lockcache.sizes import format_duration  # 3 ms, at the end of a program that asks for a summary

    if saved_ns <= 0:
        return ", compile times not recorded"
    return f", {format_duration(saved_ns / 1e9)} of compiling saved"


def _words(counts: Counters, compiled: int) -> str:
    from lockcache.sizes import counted  # as above

    words = f"{counted(counts.hits, 'hit')}, {counted(compiled, 'compilation')}"
    words += saved_in_words(counts.hits, counts.saved_ns)
    if not counts.dropped_writes:
        return words
    stored = "nothing stored" if not counts.puts else f"{counts.dropped_writes} of them not stored"
    switch = next((f" ({name} is set)" for name in _SWITCHES if is_asked_for(name)), "")
    return f"{words}, {stored}{switch}"

# SPDX-License-Identifier: Apache-2.0
"""Signs that a process works, as the kernel has them: it runs, waits for a processor or a disk, or has run just now.

Tells a process that hangs from one on a busy machine, which may be silent for long and works all the same. A clock
cannot: what suffices for a machine with 40 processes for each core keeps callers of a hung server waiting for seconds.

Where the kernel does not say these things, only a stop is seen, or nothing: there the limits of time have to do.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

#: So many looks in a row see no sign of one that hangs: between two, what works may have been woken up or not yet.
_MOST_MISSED: Final = 2
_WORKING: Final = b"RDW"
_STOPPED: Final = b"Tt"
_STATE, _USER, _SYSTEM = 0, 11, 12


class HungError(ConnectionAbortedError):
    """A process that is waited for is stopped, or does nothing, or has run for too long without a word."""


class Signs:
    """What is seen of one process, look by look. Another process begins from the start."""

    def __init__(self) -> None:
        self._pid = 0
        self._ran: tuple[bytes, ...] = ()
        self._missed = 0
        self._begun_ticks = -1

    @property
    def is_doubtful(self) -> bool:
        """Whether the last look saw no sign, so that the next one decides."""
        return self._missed > 0

    def look(self, pid: int, most_seconds: float | None = None) -> None:
        """Look at a process. Raises HungError, also for one that took more than ``most_seconds`` of a processor."""
        if not _has_own_numbers():
            return
        if pid != self._pid:
            self._pid, self._ran, self._missed, self._begun_ticks = pid, (), 0, -1
        found = _read(pid)
        if found is None:  # the connection says that it ended; or it is not there yet
            self._miss("is not there")
            return
        state, ran, ticks = found
        if state in _STOPPED:
            raise HungError("the process that compiles is stopped")
        self._begun_ticks = ticks if self._begun_ticks < 0 else self._begun_ticks
        if most_seconds is not None and ticks - self._begun_ticks > most_seconds * os.sysconf("SC_CLK_TCK"):
            raise HungError("the compile server runs and says nothing")
        if state in _WORKING or ran != self._ran or not ran[-1]:
            self._missed = 0
        else:
            self._miss("does nothing")
        self._ran = ran

    def look_for_a_stop(self, pid: int) -> None:
        """Look whether a process is stopped that may sleep. Raises HungError."""
        found = _read(pid) if _has_own_numbers() else None
        if found is not None and found[0] in _STOPPED:
            raise HungError("the process that compiles is stopped")

    def _miss(self, what: str) -> None:
        self._missed += 1
        if self._missed >= _MOST_MISSED:
            raise HungError(f"the process that compiles {what}")


def _has_own_numbers() -> bool:
    """Returns whether ``/proc`` calls processes what this one calls them: not so after ``unshare --pid`` alone."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _read(pid: int) -> tuple[bytes, tuple[bytes, ...], int] | None:
    """Returns the state of a process, what changes as it runs, and the processor time that it took, in ticks."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            fields = stat.read(4096).rpartition(b")")[2].split()
        state, used = fields[_STATE], (fields[_USER], fields[_SYSTEM])
        ticks = sum(map(int, used))
    except (OSError, IndexError, ValueError):
        return None
    return state, (*used, _scheduled(pid)), ticks


def _scheduled(pid: int) -> bytes:
    """Returns for how long the first thread of a process ran, in ns, and how often; nothing where that is not said."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/schedstat", "rb", buffering=0) as schedule:
        return schedule.read(256)
    return b""

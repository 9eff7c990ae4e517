# SPDX-License-Identifier: Apache-2.0
"""Limits on waiting for a server: a second in the whole life of a process, and none while a breaker is open.

Keeps invariant 7 (never take the job down) for time: whatever a server does, a job that asks it is at most
:data:`LIFE_SECONDS` slower for each of its processes than one that does not, and a round trip for each look-up. Charged
is the time of calls that failed, and of calls that took longer than a healthy server takes for what of the answer is
believed. A call that is answered promptly is not charged: the compilation that it may save takes a hundred times as
long. So a large entry is waited for while its bytes come no slower than over a link of 80 Mbit/s, once the server has
given the process an entry that is whole, and the answer begins like one. What begins otherwise is waited for no longer
than silence is; what is altered behind its beginning costs up to 6.7 s, and only once: it is charged.

The breaker serves all callers of one server: it opens when the server does not answer, and one caller probes the server
after :data:`PROBE_AFTER_SECONDS`, in the background. :class:`Breaker` is for one process; the processes of a directory
share a :class:`lockcache.remote.node_state.SharedBreaker`.
"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["LIFE_SECONDS", "PROBE_AFTER_SECONDS", "Breaker", "Patience", "patience_with"]

# A second, less what threads and imports of our own take.
LIFE_SECONDS: Final = 0.9
PROBE_AFTER_SECONDS: Final = 30.0

#: Of one call. Two servers that hang one after the other (it was restarted as another) still leave something.
_LONGEST_CALL_SECONDS: Final = 0.5
# What a healthy answer takes next to the time of its bytes: a round trip to another continent.
_PROMPT_SECONDS: Final = 0.1
# With less time left, a call would only fail.
_SHORTEST_CALL_SECONDS: Final = 0.01
# A server that is being restarted refuses a connection or two.
_FAILURES: Final = 3


class Patience:
    """The time that this process will still wait for a server."""

    __slots__ = ("_has_connected", "has_believed", "left_seconds", "waits_share")

    def __init__(self) -> None:
        self.left_seconds = LIFE_SECONDS
        #: The share of the time for which another node's turn is waited for. Halved by each wait in vain, so that a
        #: server whose leases never end costs twice that time in all, and not once for each key.
        self.waits_share = 1.0
        self._has_connected = False
        #: Whether the server has given this process an entry that is whole, so that a large one is waited for.
        self.has_believed = False

    def is_over(self) -> bool:
        """Returns whether this process has used up all of its waiting time."""
        return self.left_seconds < _SHORTEST_CALL_SECONDS

    @property
    def spent_seconds(self) -> float:
        """The seconds that this process has waited in vain, or for late answers."""
        return LIFE_SECONDS - self.left_seconds

    def for_call(self) -> float:
        """Returns the seconds for which a call may be waited for."""
        return max(0.0, self.left_seconds if not self._has_connected else min(self.left_seconds, _LONGEST_CALL_SECONDS))

    def charge(self, seconds: float, *, is_answered: bool, more_seconds: float = 0.0) -> bool:
        """Charge a call that was waited for. Returns whether the answer, if there was one, was prompt.

        ``more_seconds``: the time that a slow link takes for it.
        """
        self._has_connected |= is_answered
        if is_answered and seconds <= _PROMPT_SECONDS + more_seconds:
            return True
        self.left_seconds -= seconds
        return False


_patience: Final[dict[str, Patience]] = {}


def patience_with(url: str) -> Patience:
    """Returns this process's patience with one server, for all caches. A forked child has what its parent had left."""
    return _patience.setdefault(url, Patience())


class Breaker:
    """Decides whether one process asks a server at all."""

    def __init__(self) -> None:
        self._failures = 0
        self._opened_at: float | None = None

    def is_open(self) -> bool:
        """Returns whether the server is not to be asked now."""
        return self._opened_at is not None

    def takes_probe(self) -> bool:
        """Returns whether the caller has to probe the server now: one caller after each pause."""
        if self._opened_at is None or time.monotonic() - self._opened_at < PROBE_AFTER_SECONDS:
            return False
        self._opened_at = time.monotonic()
        return True

    def note_failure(self, *, is_certain: bool) -> None:
        """Count a failed call. Open the breaker after several, or if it ``is_certain`` that the next one fails too."""
        self._failures += 1
        if is_certain or self._failures >= _FAILURES:
            self.open()

    def open(self) -> None:
        """Open the breaker: nothing asks the server from now on."""
        self._opened_at = time.monotonic()

    def note_success(self) -> None:
        """Close, and count failures from zero."""
        self._failures = 0
        self._opened_at = None

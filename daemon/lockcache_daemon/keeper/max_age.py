# SPDX-License-Identifier: Apache-2.0
"""Maximum age: finds entries that were not used for too long, a few at a time.

Keeps ``--max-age`` at a bounded cost: a walk over all entries is cut into slices of some milliseconds, each in a tick
of its own, and the next walk begins when the oldest entry that is left can be due. A walk over a million entries takes
half an hour, so an entry may stay that long past its age; a walk over some thousands is one tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from lockcache.lowlevel import Found
from lockcache_daemon.settings import Rules
from lockcache_daemon.throttle import Throttle

# A share of one core, for all directories together: with the share of counting an idle daemon stays below 1 %.
_DUTY: Final = 0.002

# Three thousand entries. The clock is read every so many entries: it costs a twentieth of a stat.
_SLICE_SECONDS: Final = 0.01
_ASK_EVERY: Final = 64

# An entry that a tool stored with an older time is found after so long at the latest.
_LONGEST_PAUSE_SECONDS: Final = 6 * 3600.0


class Ageing:
    """The walks over one open directory, by these rules. ``entries`` begins a walk."""

    def __init__(
        self, entries: Callable[[], Iterator[Found]], rules: Rules, clock: Callable[[], float] = time.time
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._throttle = Throttle(*rules.pace(_DUTY))
        self._walk: Iterator[Found] | None = None
        self._oldest_ns = 0
        self._next_walk = 0.0

    def due(self, max_age_seconds: float) -> list[Found]:
        """Returns the entries that are too old, of the slice that is due.

        Raises :class:`OSError`; the walk then begins again.
        """
        now = self._clock()
        if self._walk is None and now < self._next_walk:
            return []
        if not self._throttle.is_due:
            return []
        walk, self._walk = self._walk, None
        if walk is None:
            walk, self._oldest_ns = self._entries(), int(now * 1e9)
        before_ns = int((now - max_age_seconds) * 1e9)
        with self._throttle:
            old, is_done = self._slice(walk, before_ns)
        if is_done:
            pause = self._oldest_ns / 1e9 + max_age_seconds - now
            self._next_walk = now + min(max(pause, 0.0), max_age_seconds, _LONGEST_PAUSE_SECONDS)
        else:
            self._walk = walk
        if old:
            self._throttle.forgive()  # the bound is for an idle daemon, and there is work to do
        return old

    def _slice(self, walk: Iterator[Found], before_ns: int) -> tuple[list[Found], bool]:
        """Returns the entries of a slice that are too old, and whether it was the last slice."""
        ends = time.monotonic() + _SLICE_SECONDS
        old: list[Found] = []
        for number, found in enumerate(walk, 1):
            if found.last_use_ns < before_ns:
                old.append(found)
            else:
                self._oldest_ns = min(self._oldest_ns, found.last_use_ns)
            if number % _ASK_EVERY == 0 and time.monotonic() >= ends:
                return old, False
        return old, True

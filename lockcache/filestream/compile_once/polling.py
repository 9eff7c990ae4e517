"""Polling by waiters: how often each looks for the entry and asks for its lease, by what wakes it and what that costs.

Keeps invariant 4 (readers never wait for locks) affordable: waiters poll, and what polling costs is bounded here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Pace(NamedTuple):
    """The pause between a waiter's looks: a share of the time that it has waited so far, within bounds."""

    shortest_seconds: float
    look_share: float
    longest_look_seconds: float
    # To ask for the lease costs more than to look.
    ask_share: float
    longest_ask_seconds: float

    def look_after(self, waited_seconds: float) -> float:
        return max(min(waited_seconds * self.look_share, self.longest_look_seconds), self.shortest_seconds)

    def ask_after(self, waited_seconds: float) -> float:
        return max(min(waited_seconds * self.ask_share, self.longest_ask_seconds), self.shortest_seconds)


# Waking up and looking take 40 us of a busy processor's time or 200, by how cold its caches are; asking takes twice
# that. A waiter that the bell and the holder's death wake looks only for what rings no bell (a plain put, a bell that
# was removed): three times a second, 0.1 to 0.7 ms of processor time.
WOKEN: Final = Pace(0.05, 0.5, 0.5, 1.0, 2.0)
# A waiter that nothing wakes, since its holder is on another host or in another container, must find everything by
# itself.
ALONE: Final = Pace(0.0005, 0.1, 0.06, 0.5, 0.25)
# The same on a network file system, where a look is two calls to a server that a thousand ranks may share, and asking
# for the lease six: less than four calls a second after the first second.
REMOTE: Final = Pace(0.005, 0.5, 1.5, 1.0, 4.0)

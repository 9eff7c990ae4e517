# SPDX-License-Identifier: Apache-2.0
"""Turns of callers that only look up and store: ``FileStreamProgramCache(..., compile_once=True)``.

A lookup that misses takes the key's turn and returns the miss; lookups of that key by others wait for the store. The
turn ends when its thread stores the key or looks up anything else (it has changed its mind), when the thread or the
process ends, when the cache is closed, or when the others have waited for the lease timeout. Keeps invariant 4 (readers
never wait for locks) as :class:`CompileOnce` does.
"""

from __future__ import annotations

import threading
import time
import weakref

from lockcache.filestream.compile_once.lease import LeaseTurn
from lockcache.filestream.compile_once.turns import CompileOnce
from lockcache.fork import after_fork_in_child


class ImplicitTurns:
    """The turns that the lookups of one cache have taken; at most one for each thread."""

    def __init__(self, once: CompileOnce) -> None:
        self._once = once
        self._held = threading.local()
        self._all: weakref.WeakSet[LeaseTurn] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal handler may ask in the midst of it
        after_fork_in_child(self)

    def take(self, name: str) -> tuple[bytes, bytes] | None:
        """Wait for the process that computes an entry, and return it; or take the turn, and return ``None``.

        For after a look-up that missed.
        """
        outcome = self._once.wait_or_turn(name, "")
        if not isinstance(outcome, LeaseTurn):
            return outcome
        self._held.began_ns, self._held.turn = time.monotonic_ns(), outcome
        with self._lock:
            self._all.add(outcome)
        return None

    def stored(self, name: str, *, was_dropped: bool) -> int:
        """Note that this thread wrote the entry, or that its write was dropped.

        Returns what it took to compute in nanoseconds; 0 where this thread had no turn.
        """
        turn: LeaseTurn | None = getattr(self._held, "turn", None)
        if turn is None or turn.name != name:
            return 0
        self._held.turn = None
        cost_ns: int = time.monotonic_ns() - self._held.began_ns
        self._once.costs.remember(name, cost_ns)
        turn.end(was_stored=not was_dropped, was_dropped=was_dropped)
        return cost_ns

    def mine(self, name: str) -> LeaseTurn | None:
        """Returns this thread's turn, if it is that of ``name``."""
        turn: LeaseTurn | None = getattr(self._held, "turn", None)
        return turn if turn is not None and turn.name == name else None

    def close(self) -> None:
        """End the turns of all threads."""
        with self._lock:
            turns = list(self._all)
        for turn in turns:
            turn.end()

    def end_mine(self) -> None:
        """End this thread's turn, if it has one: the thread looks up something else."""
        turn: LeaseTurn | None = getattr(self._held, "turn", None)
        if turn is not None:
            self._held.turn = None
            turn.end()

    def _after_fork_in_child(self) -> None:
        # The child's copies of the leases are closed; the turns are its parent's.
        self._held = threading.local()
        self._all = weakref.WeakSet()
        self._lock = threading.RLock()

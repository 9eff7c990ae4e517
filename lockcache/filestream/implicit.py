"""Compile-once for callers who only look up and store: ``FileStreamProgramCache(..., compile_once=True)``.

Decides when a lease that nobody asked for begins and ends. A lookup that misses takes the key's turn and returns the
miss; lookups of that key by others wait for the store. The turn ends when its thread stores the key or looks anything
up again (it has changed its mind), when the thread or the process ends, when the cache is closed, or when the others
have waited for the lease timeout.
"""

from __future__ import annotations

import threading
import time
import weakref

from lockcache.filestream.guarded import Loader
from lockcache.filestream.once import CompileOnce, Turn
from lockcache.fork import after_fork_in_child

__all__ = ["ImplicitTurns"]


class ImplicitTurns:
    """The turns that the lookups of one cache have taken; at most one for each thread."""

    def __init__(self, once: CompileOnce, reader: Loader) -> None:
        self._once = once
        self._reader = reader
        self._held = threading.local()
        self._all: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._lock = threading.Lock()
        after_fork_in_child(self)

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """As :meth:`Loader.load`; on a miss, waits for whoever computes the entry, or takes the turn to."""
        self.end_mine()
        loaded = self._reader.load(name)
        if loaded is not None:
            return loaded
        outcome = self._once.wait_or_turn(name, "")
        if not isinstance(outcome, Turn):
            return outcome
        self._held.turn = outcome
        with self._lock:
            self._all.add(outcome)
        return None

    def stored(self, name: str, *, was_dropped: bool) -> None:
        """The entry was written by this thread, or its write was dropped."""
        turn: Turn | None = getattr(self._held, "turn", None)
        if turn is not None and turn.name == name:
            self._held.turn = None
            self._once.costs.remember(name, time.monotonic_ns() - turn.began_ns)
            turn.end(was_dropped=was_dropped)

    def close(self) -> None:
        """End the turns of all threads."""
        with self._lock:
            turns = list(self._all)
        for turn in turns:
            turn.end()

    def end_mine(self) -> None:
        """End this thread's turn, if it has one: it looks for something else."""
        turn: Turn | None = getattr(self._held, "turn", None)
        if turn is not None:
            self._held.turn = None
            turn.end()

    def _after_fork_in_child(self) -> None:
        # The child's copies of the leases are closed; the turns are its parent's.
        self._held = threading.local()
        self._all = weakref.WeakSet()
        self._lock = threading.Lock()

"""Single flight among the threads of one process: what compile-once is where no other process shares the store.

Keeps the promise of ``get_or_compute`` for back ends without leases: of the threads that miss one key at once, one
computes and the others get what it stored; different keys never wait for each other; a ``compute`` that raises lets the
next thread try. Not promised: anything between processes.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

from lockcache.errors import ReentrantComputeError
from lockcache.fork import after_fork_in_child

__all__ = ["flight"]


class _Flight:
    """The threads that want one key of one cache."""

    __slots__ = ("lock", "owner", "threads")

    def __init__(self) -> None:
        # Reentrant: between taking it and noting the owner a signal handler may ask for the same key.
        self.lock = threading.RLock()
        self.owner = 0
        self.threads = 0


class _Flights:
    """All flights of one process, by cache and key. One is kept only while a thread is in it."""

    def __init__(self) -> None:
        self._after_fork_in_child()
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()  # a signal handler may ask during it
        self._by_cache: weakref.WeakKeyDictionary[object, dict[bytes, _Flight]] = weakref.WeakKeyDictionary()

    def join(self, cache: object, key: bytes) -> _Flight:
        with self._lock:
            found = self._by_cache.setdefault(cache, {}).setdefault(key, _Flight())
            if found.owner == threading.get_ident():
                raise ReentrantComputeError(f"the computation of {key!r} asked for {key!r} itself")
            found.threads += 1
            return found

    def leave(self, cache: object, key: bytes, found: _Flight) -> None:
        with self._lock:
            found.threads -= 1
            if not found.threads:
                self._by_cache.get(cache, {}).pop(key, None)


_flights = _Flights()


@contextlib.contextmanager
def flight(cache: object, key: bytes) -> Iterator[None]:
    """Hold the flight of ``key`` in ``cache``; waits for the thread that has it. Reentrance is an error."""
    found = _flights.join(cache, key)
    try:
        with found.lock:
            found.owner = threading.get_ident()
            try:
                yield
            finally:
                found.owner = 0
    finally:
        _flights.leave(cache, key, found)

# SPDX-License-Identifier: Apache-2.0
"""Single flight: of the callers that miss a key at once, one has the turn to compute and the others wait for its entry.

:class:`Turn` is what a caller holds, whichever back end gave it. :func:`take_off` gives turns among the threads of one
process, for back ends that no other process shares: a live object holds each turn, so that the turn ends however the
code that holds it is left. A child that is forked holds none of its parent's turns. Not promised: anything between
processes; :mod:`lockcache.filestream.compile_once` is for those.
"""

from __future__ import annotations

import contextvars
import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from lockcache.errors import ReentrantComputeError
from lockcache.fork import after_fork_in_child

_Entry = TypeVar("_Entry")


class Turn(Generic[_Entry]):
    """The caller's turn to compute the entry of one key, from :meth:`ProgramCacheResource.begin`.

    While it is held, others that want the key wait for it. It ends by :meth:`store`, by :meth:`give_up`, when its
    ``with`` block is left, when nothing refers to it any more, and with its process; then one of those who wait has
    the turn, or all have the entry. A forked child holds none: what it stores is stored, and nobody waits for it. A
    thread may hold the turns of several keys, and any thread may end one. Two threads that each wait for the other's
    turn wait until the lease timeout, and without leases for ever. A ``with`` block that an :class:`Exception` leaves
    has failed (:meth:`give_up`).
    """

    __slots__ = ("__weakref__", "_after_failure", "_began_ns", "_computes", "_end", "_publish")

    def __init__(self, publish: Callable[[object, int], _Entry], end: Callable[[bool], object] | None = None) -> None:
        """``publish(value, cost_ns)`` stores and returns the entry; ``end(failed)`` frees the key.

        Without ``end`` it is a turn for which nobody waits.
        """
        self._publish: Callable[[object, int], _Entry] | None = publish
        # Refers to the object that holds the key, which ends by itself when this is collected: no destructor is needed
        # here.
        self._end = end
        # Whether another process failed with it a moment ago, so that nobody needs to wait for this turn.
        self._after_failure = False
        # The cache and the key, while a task is in the computation: see :func:`computing`.
        self._computes: tuple[object, bytes] = (None, b"")
        self._began_ns = time.perf_counter_ns()

    def store(self, value: object, cost_ns: int | None = None) -> _Entry:
        """Store ``value``, as for ``cache[key] = value`` or an :class:`Entry`, and end the turn.

        Returns the entry, which the caller has also where the write was dropped: what another process stored meanwhile,
        if this one was overdue. ``cost_ns`` is what computing cost, in nanoseconds; without it, the time since the turn
        began. An Entry that states another cost is believed.

        Raises:
            RuntimeError: The turn has ended.
            TypeError, ValueError: ``value`` cannot be stored. The turn has ended.
        """
        publish = self._publish
        if publish is None:
            raise RuntimeError("this turn has ended: it was stored or given up")
        if cost_ns is None:
            cost_ns = time.perf_counter_ns() - self._began_ns
        try:
            return publish(value, cost_ns)
        finally:
            self.give_up()

    def give_up(self, *, failed: bool = False) -> None:
        """End the turn without storing; nothing happens if it has ended. The next caller has the turn.

        ``failed``: the computation failed, and others would fail as well. Those who wait do not wait for each other
        then: each computes for itself at once, and has its own error no later than the first.
        """
        end, self._publish, self._end = self._end, None, None
        if end is not None:
            end(failed)

    def _let_all_go(self) -> None:
        """Let those who wait compute for themselves, as after a failure. This turn may still store."""
        if self._end is not None:
            self._end(True)

    def __enter__(self) -> Turn[_Entry]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._publish is not None:
            self.give_up(failed=isinstance(error, Exception))


_local = threading.local()


def _this_thread() -> object:
    """Returns an object that no other thread has, even after this one ended: a thread's number is used again then."""
    return _local.__dict__.setdefault("thread", object())


# The turns in whose computations a task is, in one thread or several, none of which would know by itself that it waits
# for itself. One that has ended is passed over: so there is nothing to take back, wherever an interrupt comes.
_computing: contextvars.ContextVar[tuple[weakref.ref[Turn[Any]], ...]] = contextvars.ContextVar(
    "lockcache_computing", default=()
)


def computing(cache: object, key: bytes, turn: Turn[Any]) -> None:
    """Note that this task, and all that it starts, compute ``key`` of ``cache`` until ``turn`` ends."""
    turn._computes = cache, key
    others = [mark for mark in _computing.get() if (other := mark()) is not None and other._publish is not None]
    _computing.set((*others, weakref.ref(turn)))


def refuse_reentrance(cache: object, key: bytes) -> None:
    """Raise :class:`ReentrantComputeError` where this task is :func:`computing` the same key. For after a miss."""
    for mark in _computing.get():
        turn = mark()
        if turn and turn._publish and turn._computes[0] is cache and turn._computes[1] == key:
            raise ReentrantComputeError(f"the computation of {key!r} asked for {key!r} itself")


class Flight:
    """One thread's turn for one key of one cache. It is held for as long as this lives, or until :meth:`land`."""

    __slots__ = ("__del__", "__weakref__", "_failures", "_key", "_others", "_over",
                 "after_failure", "has_begun", "has_waited", "thread")  # fmt: skip

    #: Not a method, in which an interrupt could come and be lost: the interpreter calls what stands in the slot.
    __del__: Callable[[], object]

    def __init__(self, key: bytes, others: _ByKey) -> None:
        self._key, self._others = key, others
        self.thread = _this_thread()
        #: Whether its thread is computing, so that it would wait for itself if it asked for the entry again.
        self.has_begun = False
        #: Whether another thread had the turn when this one asked for it, and failed.
        self.has_waited = self.after_failure = False
        # An item in this queue lets one waiter go, which puts it back for the next. Of all means to wake a thread, only
        # this may be used by a destructor or a signal handler that interrupts its own use.
        self._over: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.__del__ = functools.partial(self._over.put, None)
        #: Not empty once the computation has failed.
        self._failures: list[None] = []

    def begin(self) -> None:
        """State that its thread computes from now on."""
        self.has_begun = True

    def land(self, failed: bool = False) -> None:
        """End the flight, and let all waiters go: if it failed, without waiting for each other. May be called twice."""
        self.has_begun = False
        if self._others.get(self._key) is self:
            self._others.pop(self._key, None)
        if failed:
            self._failures.append(None)
        self._over.put(None)

    def end_of(self) -> Callable[[float | None], bool]:
        """Returns what waits until this ends, for so many seconds at most, without keeping it alive.

        The result of that is whether the computation failed.
        """
        over, failures = self._over, self._failures

        def wait(seconds: float | None) -> bool:
            try:
                over.get(timeout=seconds)
            except queue.Empty:
                return False
            over.put(None)
            return bool(failures)

        return wait


_ByKey: TypeAlias = "weakref.WeakValueDictionary[bytes, Flight]"


class _Flights:
    """All flights of one process, by cache and key."""

    def __init__(self) -> None:
        self._after_fork_in_child()
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()  # a signal handler may ask during it
        self._by_cache: weakref.WeakKeyDictionary[object, _ByKey] = weakref.WeakKeyDictionary()

    def of(self, cache: object) -> _ByKey:
        with self._lock:
            return self._by_cache.setdefault(cache, weakref.WeakValueDictionary())

    def enter(self, mine: Flight, key: bytes, others: _ByKey) -> Flight:
        """Returns ``mine`` if nobody has that key's turn, else the flight of the one who has it."""
        with self._lock:
            return others.setdefault(key, mine)


_flights = _Flights()


def take_off(cache: object, key: bytes) -> Flight:
    """Wait until no one else has the turn of ``key`` in ``cache``, and return it.

    After a computation that failed it is a turn for which nobody waits.

    Raises :class:`ReentrantComputeError` if this thread is computing it already.
    """
    others = _flights.of(cache)
    mine = Flight(key, others)
    while True:
        found = _flights.enter(mine, key, others)
        if found is mine:
            return mine
        if found.thread is mine.thread:
            return _turn_of_handler(found, key)
        wait = found.end_of()
        del found  # the waiters for its end must not keep it alive
        mine.has_waited = True
        if wait(None):
            mine.after_failure = True
            return mine


def wait_for_flight(cache: object, key: bytes, seconds: float) -> bool:
    """Wait until the flight of ``key`` ends, if somebody has it. Returns whether somebody had.

    Raises as :func:`take_off` does.
    """
    found = _flights.of(cache).get(key)
    if found is None:
        return False
    if found.thread is _this_thread():
        _turn_of_handler(found, key)
        return False
    wait = found.end_of()
    del found
    wait(seconds)
    return True


def _turn_of_handler(found: Flight, key: bytes) -> Flight:
    """Returns a turn for a signal handler that interrupted its own thread's wait for the same turn."""
    if found.has_begun:
        raise ReentrantComputeError(f"the computation of {key!r} asked for {key!r} itself")
    return Flight(key, weakref.WeakValueDictionary())

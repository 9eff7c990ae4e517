"""Compile-once: of all callers that miss a key at once, in all processes, one computes and the others get its result.

Keeps the promise that waiting ends: as soon as the entry is published, the holder dies or its ``compute`` raises; and
at the latest when the holder is overdue, after which one waiter takes over while the rest wait for that one. Keeps
invariant 4 (readers never wait for locks: waiters poll the entry without a lock, and hold none while they sleep) and 7
(never take the job down: where leases cannot be had, everybody computes).

Different keys never wait for each other: each has a lease of its own. A takeover is a lease of the next generation of
the same key; a process that finishes after another one published takes what is published. An overdue holder that raises
frees its own lease, and a process that takes that meets the takeover's and waits for it. Not promised: that a takeover
which begins in the very moment in which the overdue holder raises is seen; then both of two callers compute.

:class:`ImplicitTurns` is for callers that only look up and store (``FileStreamProgramCache(..., compile_once=True)``).
A lookup that misses takes the key's turn and returns the miss; lookups of that key by others wait for the store. The
turn ends when its thread stores the key or looks up anything else (it has changed its mind), when the thread or the
process ends, when the cache is closed, or when the others have waited for the lease timeout.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import random
import threading
import time
import weakref
from collections.abc import Hashable
from typing import Final, NamedTuple, TypeAlias

from lockcache.errors import ReentrantComputeError
from lockcache.filestream.compile_once.costs import CostTable
from lockcache.filestream.compile_once.lease import Holder, Lease, holder_of, take_lease
from lockcache.filestream.disk import Layout, Sleeper, bell_of, myself, revalidate, unlink_below
from lockcache.filestream.entry import Loader
from lockcache.fork import after_fork_in_child

_log = logging.getLogger("lockcache")


class _Pace(NamedTuple):
    """How often a waiter looks: after a share of what it has waited so far, within bounds."""

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
_WOKEN: Final = _Pace(0.05, 0.5, 0.5, 1.0, 2.0)
# One that nothing wakes, since its holder is on another host or in another container, must find all of it by itself.
_ALONE: Final = _Pace(0.0005, 0.1, 0.06, 0.5, 0.25)
# The same on a network file system, where a look is two calls to a server that a thousand ranks may share, and asking
# for the lease six: less than four calls a second after the first second.
_REMOTE: Final = _Pace(0.005, 0.5, 1.5, 1.0, 4.0)

#: Without another wish: a holder has a minute, or four times what compiling that key took the last time.
_TIMEOUT_SECONDS: Final = 60.0
_TIMEOUT_COSTS: Final = 4
# Whatever the table says: others may write it, and no kernel takes a quarter of an hour.
_LONGEST_TIMEOUT_SECONDS: Final = 3600.0

# How long a waiter has waited when it says so. At WARNING it is on stderr, also of a program that knows of no logging.
_NOTICES: Final = ((2.0, logging.INFO, "waiting"), (10.0, logging.WARNING, "still waiting"))
_SETTLED_SECONDS: Final = 0.05

# Each is a holder that was given its whole time. Past that many, compiling is what all of them should do.
_GENERATIONS: Final = 8

# How long after a dropped write nobody waits for that key: a full disk must not make its compilations take turns.
_DROPPED_NS: Final = 10 * 10**9


class LeaseTurn:
    """This caller's turn to compute a key. End it, in whatever way, with :meth:`end`."""

    __slots__ = ("__weakref__", "_lease", "_turns", "began_ns", "has_begun", "name")

    def __init__(self, turns: _Turns, name: str, lease: Lease | None) -> None:
        self._turns = turns
        self._lease = lease
        self.name = name
        self.began_ns = time.monotonic_ns()
        #: Whether its thread is in ``compute``, so that it would wait for itself if it asked for the entry again.
        self.has_begun = False
        turns[name] = self

    def begin(self) -> None:
        """State that its thread is in ``compute`` from now on."""
        self._turns[self.name] = self
        self.has_begun = True

    def end(self, *, was_stored: bool | None = None) -> None:
        """Let the next caller in. ``was_stored``: whether the write that ends it was, or was dropped.

        After a dropped one the others need not wait for each other.
        """
        self.has_begun = False
        if self._turns.get(self.name) is self:
            self._turns.pop(self.name, None)
        if self._lease is not None:
            dropped_ns = time.time_ns() if was_stored is False else 0
            self._lease.release(dropped_ns=dropped_ns, is_published=was_stored is True)


class CompileOnce:
    """Decides whose turn it is, for one directory."""

    def __init__(self, layout: Layout, reader: Loader, timeout_seconds: float | None) -> None:
        self.layout = layout
        self._reader = reader
        #: Reads an entry.
        self.load = reader.load
        self._timeout_seconds = timeout_seconds
        self.costs = CostTable(layout)
        # What each thread is waiting for or computing now: asking for it again would wait for itself. Weak, so that it
        # ends with the turn, wherever an interrupt comes.
        self._computing = threading.local()
        after_fork_in_child(self)

    def wait(self, name: str, seconds: float) -> tuple[bytes, bytes] | None:
        """The entry, as soon as the one who has its turn published it; ``None`` if nobody has it, or after ``seconds``.

        Raises as :meth:`wait_or_turn` does.
        """
        outcome = self.wait_or_turn(name, "", until=time.monotonic() + seconds)
        if isinstance(outcome, LeaseTurn):
            outcome.end()
            return None
        return outcome

    def wait_or_turn(self, name: str, label: str, *, until: float = math.inf) -> tuple[bytes, bytes] | LeaseTurn:
        """The entry, as soon as somebody published it; or this caller's turn to compute it.

        ``label`` tells people what the entry is. Where another has the turn ``until`` that moment, in monotonic
        seconds, a turn that keeps nobody waiting.

        Raises :class:`ReentrantComputeError` if this thread is computing it already.
        """
        turns = self._turns()
        if name in turns:
            return _turn_of_handler(turns, name)
        wait = _Wait(self, name, label)
        turns[name] = wait
        while True:
            try:
                lease = take_lease(self.layout, name, wait.generation, label)
            except OSError as error:
                _log.debug("%s: no leases here (%s): every process compiles for itself", self.layout.root, error)
                wait.end()
                return LeaseTurn(turns, name, None)
            loaded = self.look(name)
            if loaded is not None:
                if lease is not None:
                    lease.release(is_published=True)
                wait.end()
                return loaded
            if lease is not None and self._was_taken_over(name, wait.generation):
                lease.release()
                wait.go_on()
                continue
            if lease is not None:
                return LeaseTurn(turns, name, _unless_dropped(lease))
            if wait.is_over(until):
                return LeaseTurn(turns, name, None)
            wait.pause(until)
            # Before the lease: all who wait wake at once, and to take it when nobody holds it makes and removes a file.
            loaded = self.look(name)
            if loaded is not None:
                wait.end()
                return loaded

    def look(self, name: str) -> tuple[bytes, bytes] | None:
        """The entry if it is published. A look that finds nothing is not counted as a miss."""
        return self._reader.load(name) if self._is_published(name) else None

    def news(self, name: str, generation: int) -> Hashable:
        """Returns whether the entry is there, and the state of the lease file: two calls, so that many may poll them.

        The file goes when its holder gives up, and is written when somebody takes it or drops a write. On a network
        file system, where each of the two is a call to the server, to ask for the lease must do.
        """
        is_published = self._is_published(name)
        return is_published, None if self.layout.is_network else _state(self.layout.lease(name, generation))

    def _is_published(self, name: str) -> bool:
        path = self.layout.entry(name)
        return revalidate(self.layout, os.path.dirname(path)) and _is_there(path)

    def _was_taken_over(self, name: str, generation: int) -> bool:
        """Whether somebody computes in the place of an overdue holder of this lease, which has failed since.

        A file is enough: where its holder is dead too, or had its write dropped, the caller has that lease at once.
        """
        if generation + 1 >= _GENERATIONS:
            return False
        return _is_there(self.layout.lease(name, generation + 1))

    def timeout_seconds(self, cost_ns: int) -> float:
        """How long a holder is waited for."""
        if self._timeout_seconds is not None:
            return self._timeout_seconds
        return max(_TIMEOUT_SECONDS, min(_TIMEOUT_COSTS * cost_ns / 1e9, _LONGEST_TIMEOUT_SECONDS))

    def lease_path(self, name: str, generation: int) -> str:
        return self.layout.lease(name, generation)

    def holder(self, name: str, generation: int) -> Holder | None:
        return holder_of(self.layout, name, generation)

    def _turns(self) -> _Turns:
        found: _Turns | None = getattr(self._computing, "turns", None)
        if found is None:
            found = self._computing.turns = weakref.WeakValueDictionary()
        return found

    def _after_fork_in_child(self) -> None:
        # A child forked inside compute is a caller of its own: its parent's turn is not its turn.
        self._computing = threading.local()


class _Wait:
    """One caller's wait for one key."""

    def __init__(self, once: CompileOnce, name: str, label: str) -> None:
        self._once = once
        self._name = name
        self._label = label
        self.generation = 0
        self._began = self._holder_since = time.monotonic()
        self._holder: tuple[str, int, int] | None = None
        # How long the holder still has.
        self._left_seconds = 0.0
        self._news: Hashable = None
        self._sleeper = Sleeper(once.layout, bell_of(once.lease_path(name, 0)))
        self._notices = list(_NOTICES)

    @functools.cached_property
    def _cost_ns(self) -> int:
        """What compiling the key took the last time: read once it is clear that somebody else compiles."""
        return self._once.costs.cost_ns(self._name)

    def is_over(self, until: float) -> bool:
        """Look at the holder. Returns whether even the last generation had its time, or it is ``until``."""
        holder = self._once.holder(self._name, self.generation)
        if holder is not None:
            self._see(holder)
        self._left_seconds = self._once.timeout_seconds(self._cost_ns) - self._age_seconds(holder)
        if self._left_seconds < 0:
            self.go_on()
        if self.generation >= _GENERATIONS:
            self.end()
            return True
        return time.monotonic() >= until  # and the bell stays for others

    def go_on(self) -> None:
        """Look at the next generation from now on."""
        self.generation += 1
        self._holder_since = time.monotonic()
        self._left_seconds = 0.0

    def pause(self, until: float) -> None:
        """Sleep until the entry is there, the lease was given up or fell, or it is time to ask for it again.

        Not beyond ``until``, in monotonic seconds.
        """
        self._sleeper.listen()
        pace = _WOKEN if self._sleeper.is_woken else _REMOTE if self._once.layout.is_network else _ALONE
        now = time.monotonic()
        ask = now + max(min(pace.ask_after(now - self._began), self._left_seconds), _ALONE.shortest_seconds)
        ask = min(ask, until)
        while now < ask:
            older, self._news = self._news, self._once.news(self._name, self.generation)
            if self._news != older:
                return
            seconds = pace.look_after(now - self._began) * (0.5 + random.random() / 2)
            if self._sleeper.sleep(min(seconds, ask - now)):
                return
            now = time.monotonic()

    def end(self) -> None:
        """There is nothing to wait for any more, for anybody: remove the bell."""
        if self._sleeper.has_bell:
            with contextlib.suppress(OSError):
                unlink_below(self._once.layout, bell_of(self._once.lease_path(self._name, 0)))

    def _see(self, holder: Holder) -> None:
        who = (holder.token, holder.pid, holder.start_ns)
        if who != self._holder:
            self._holder, self._holder_since = who, time.monotonic()
            if holder.token == myself().host:
                self._sleeper.watch(holder.pid)
            else:
                self._sleeper.ignore_deaths()
        while self._notices and time.monotonic() - self._began > self._notices[0][0]:
            _, level, what = self._notices.pop(0)
            _log.log(level, "%s for %s", what, self._in_words(holder))

    def _age_seconds(self, holder: Holder | None) -> float:
        waited = time.monotonic() - self._holder_since
        # Another host's clock says nothing here. And a record that was just met may be that of a holder which died: the
        # next one locks its file some microseconds before it writes its own.
        if holder is None or holder.token != myself().host or waited < _SETTLED_SECONDS:
            return waited
        return max(waited, (time.monotonic_ns() - holder.start_ns) / 1e9)

    def _in_words(self, holder: Holder) -> str:
        last = f"it took {self._cost_ns / 1e9:.1f} s the last time" if self._cost_ns else "for the first time"
        label = holder.label or self._label
        what = f"{label} ({self._name[:16]})" if label.isprintable() and label else self._name[:16]
        return f"process {holder.pid} on {holder.host} to compile {what}: {last}"


def _is_there(path: str) -> bool:
    return os.access(path, os.F_OK, effective_ids=True)


def _state(path: str) -> tuple[int, int, int] | None:
    """Something that is another once a lease file was made again or written; ``None`` where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


#: Of one thread: what it waits for, and whose turn it has.
_Turns: TypeAlias = "weakref.WeakValueDictionary[str, _Wait | LeaseTurn]"


def _turn_of_handler(turns: _Turns, name: str) -> LeaseTurn:
    """A turn for a signal handler in the midst of its own thread's wait for that turn: it cannot wait for itself.

    Raises :class:`ReentrantComputeError` in the midst of the computation.
    """
    found = turns.get(name)
    if isinstance(found, LeaseTurn) and found.has_begun:
        raise ReentrantComputeError(f"the computation of entry {name} asked for that entry itself")
    return LeaseTurn(turns, name, None)


def _unless_dropped(lease: Lease) -> Lease | None:
    """``lease``, or ``None`` after giving it back, if a write of this key was dropped a moment ago."""
    dropped_ns = lease.previous.dropped_ns if lease.previous is not None else 0
    if not 0 <= time.time_ns() - dropped_ns < _DROPPED_NS:
        return lease
    lease.release(dropped_ns=dropped_ns)
    return None


class ImplicitTurns:
    """The turns that the lookups of one cache have taken; at most one for each thread."""

    def __init__(self, once: CompileOnce, reader: Loader) -> None:
        self._once = once
        self._reader = reader
        self._held = threading.local()
        self._all: weakref.WeakSet[LeaseTurn] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal handler may ask in the midst of it
        after_fork_in_child(self)

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """As :meth:`Loader.load`; on a miss, waits for the process that computes the entry, or takes the turn to."""
        self.end_mine()
        loaded = self._reader.load(name)
        if loaded is not None:
            return loaded
        outcome = self._once.wait_or_turn(name, "")
        if not isinstance(outcome, LeaseTurn):
            return outcome
        self._held.turn = outcome
        with self._lock:
            self._all.add(outcome)
        return None

    def stored(self, name: str, *, was_dropped: bool) -> None:
        """The entry was written by this thread, or its write was dropped."""
        turn: LeaseTurn | None = getattr(self._held, "turn", None)
        if turn is not None and turn.name == name:
            self._held.turn = None
            self._once.costs.remember(name, time.monotonic_ns() - turn.began_ns)
            turn.end(was_stored=not was_dropped)

    def close(self) -> None:
        """End the turns of all threads."""
        with self._lock:
            turns = list(self._all)
        for turn in turns:
            turn.end()

    def end_mine(self) -> None:
        """End this thread's turn, if it has one: it looks for something else."""
        turn: LeaseTurn | None = getattr(self._held, "turn", None)
        if turn is not None:
            self._held.turn = None
            turn.end()

    def _after_fork_in_child(self) -> None:
        # The child's copies of the leases are closed; the turns are its parent's.
        self._held = threading.local()
        self._all = weakref.WeakSet()
        self._lock = threading.RLock()

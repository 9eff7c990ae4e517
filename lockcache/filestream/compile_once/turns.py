"""Compile-once: of all callers that miss a key at once, in all processes, one computes and the others get its result.

Keeps the promise that waiting ends: as soon as the entry is published, the holder dies or its ``compute`` raises; and
at the latest when the holder is overdue, after which one waiter takes over while the rest wait for that one. Keeps
invariant 4 (readers never wait for locks: waiters poll the entry without a lock, and hold none while they sleep) and 7
(never take the job down: where leases cannot be had, everybody computes).

Different keys never wait for each other: each has a lease of its own. A takeover is a lease of the next generation of
the same key; a process that finishes after another one published takes what is published. An overdue holder that raises
frees its own lease, and a process that takes that meets the takeover's and waits for it. Not promised: that a takeover
which begins in the very moment in which the overdue holder raises is seen; then both of two callers compute.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from lockcache.errors import ReentrantComputeError
from lockcache.filestream.compile_once.costs import CostTable
from lockcache.filestream.compile_once.lease import Holder, Lease, holder_of, take_lease
from lockcache.filestream.disk import LOCAL, Layout, Waiter, myself
from lockcache.filestream.entry import EntryReader, Loader
from lockcache.fork import after_fork_in_child

_log = logging.getLogger("lockcache")

#: Without another wish: a holder has a minute, or four times what compiling that key took the last time.
_TIMEOUT_SECONDS: Final = 60.0
_TIMEOUT_COSTS: Final = 4
# A bound on what the table states: other users may write it, and no kernel takes a quarter of an hour.
_LONGEST_TIMEOUT_SECONDS: Final = 3600.0

# The times of waiting after which a waiter logs it. A WARNING appears on stderr, also in a program without logging.
_NOTICES: Final = ((2.0, logging.INFO, "waiting"), (10.0, logging.WARNING, "still waiting"))
_SETTLED_SECONDS: Final = 0.05

# Each generation is a holder that had its whole time. After that many, all waiters should compile.
_GENERATIONS: Final = 8


class LeaseTurn:
    """This caller's turn to compute a key. End it, in whatever way, with :meth:`end`."""

    __slots__ = ("__weakref__", "_joined", "_lease", "_turns", "after_failure", "began_ns", "has_begun", "name")

    def __init__(self, turns: _Turns, name: str, lease: Lease | None, *, after_failure: bool = False) -> None:
        self._turns = turns
        #: Whether the turn before it failed a moment ago, so that nobody waits for this one.
        self.after_failure = after_failure or (lease is not None and _follows_failure(lease))
        self._lease = None if self.after_failure else lease
        self._joined: Callable[[bool], object] | None = None
        self.name = name
        self.began_ns = time.monotonic_ns()
        #: Whether its thread is in ``compute``, so that it would wait for itself if it asked for the entry again.
        self.has_begun = False
        turns[name] = self

    def begin(self) -> None:
        """State that its thread is in ``compute`` from now on."""
        self._turns[self.name] = self
        self.has_begun = True

    def join(self, end: Callable[[bool], object]) -> None:
        """Call ``end(failed)`` when this turn ends: a turn of more than this directory, for the same computation."""
        self._joined = end

    def end(self, failed: bool = False, *, was_stored: bool = False, was_dropped: bool = False) -> None:
        """End the turn and let the next caller in.

        ``failed``: the computation failed, so that those who waited need not wait for each other. ``was_dropped``: its
        write was, so that nobody needs to.
        """
        self.has_begun = False
        if self._turns.get(self.name) is self:
            self._turns.pop(self.name, None)
        if self._lease is not None:
            leaves_note = was_dropped or (failed and self._lease.is_waited_for())
            self._lease.release(failed_ns=time.time_ns() if leaves_note else 0, is_published=was_stored)
        joined, self._joined = self._joined, None
        if joined is not None:
            joined(failed)


class CompileOnce:
    """Decides whose turn it is, for one directory."""

    def __init__(self, layout: Layout, reader: Loader, counts: EntryReader, timeout_seconds: float | None) -> None:
        """``counts``: where ``reader`` counts."""
        self.layout = layout
        self._reader = reader
        self.counts = counts
        #: Reads an entry.
        self.load = reader.load
        self._timeout_seconds = timeout_seconds
        self.costs = CostTable(layout)
        # What each thread is waiting for or computing now: if it asked for the same key again, it would wait for
        # itself. Weak references, so that each ends with the turn, wherever an interrupt comes.
        self._computing = threading.local()
        after_fork_in_child(self)

    def wait(self, name: str, seconds: float) -> tuple[bytes, bytes] | None:
        """Returns the entry once the holder of its turn published it; ``None`` without a holder, or after ``seconds``.

        Raises as :meth:`wait_or_turn` does.
        """
        outcome = self.wait_or_turn(name, "", until=time.monotonic() + seconds)
        if isinstance(outcome, LeaseTurn):
            outcome.end()
            return None
        return outcome

    def wait_or_turn(self, name: str, label: str, *, until: float = math.inf) -> tuple[bytes, bytes] | LeaseTurn:
        """Returns the entry once another process published it, or this caller's turn to compute it.

        ``label`` tells people what the entry is. If another caller still has the turn at ``until`` (monotonic seconds),
        returns a turn for which no one waits.

        For after a look-up that was counted as a miss. While this waits it counts as neither, and served as a hit.

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
                return self._without_lease(name, wait)
            # A waiter that did not get the lease has just looked, which on a network file system is two calls to the
            # server.
            loaded = None if lease is None and self.layout.is_network else self.look(name, is_last=lease is not None)
            if loaded is not None:
                if lease is not None:
                    lease.release(is_published=True)
                return wait.end_served(loaded)
            if lease is not None and self._was_taken_over(name, wait.generation):
                lease.release()
                wait.go_on()
                continue
            if lease is not None:
                return LeaseTurn(turns, name, lease)
            after_failure = wait.saw_failure()
            if after_failure or wait.is_over(until):
                return LeaseTurn(turns, name, None, after_failure=after_failure)
            self.counts.misses -= 1
            try:
                wait.pause(until)
            finally:
                self.counts.misses += 1
            # Look before asking for the lease: all waiters wake at once, and taking a free lease makes and removes a
            # file.
            loaded = self.look(name)
            if loaded is not None:
                return wait.end_served(loaded)

    def _without_lease(self, name: str, wait: _Wait) -> tuple[bytes, bytes] | LeaseTurn:
        loaded = self.look(name, is_last=True)
        if loaded is not None:
            return wait.end_served(loaded)
        wait.end()
        return LeaseTurn(self._turns(), name, None)

    def look(self, name: str, *, is_last: bool = False) -> tuple[bytes, bytes] | None:
        """Returns the entry if it is published. A look that finds nothing is not counted as a miss.

        ``is_last``: if it finds nothing, the caller computes. That is worth the calls by which a client of NFS is sure.
        """
        path = self.layout.entry(name)
        is_there = self.layout.reach.has(path, is_sure=True) if is_last else self._is_published(name)
        if not is_there:
            return None
        loaded = self._reader.load(name)
        self.counts.misses -= loaded is None  # damaged, or removed just now
        return loaded

    def published_meanwhile(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns the entry that another process published, which took the turn over while this one was overdue.

        It is not counted as a hit: this one computed it, and was counted as a miss.
        """
        loaded = self.look(name)
        if loaded is not None:
            self.counts.take_back_computed(name, loaded)
        return loaded

    def poll(self, name: str, generation: int) -> Hashable:
        """Returns whether the entry is there, and the state of the lease file: two calls, so that many may poll them.

        The file is removed when its holder gives up, and written when a process takes the lease or drops a write. On a
        network file system, where each of the two is a call to the server, waiters only ask for the lease.
        """
        is_published = self._is_published(name)
        return is_published, None if self.layout.is_network else _state(self.layout.lease(name, generation))

    def _is_published(self, name: str) -> bool:
        path = self.layout.entry(name)
        return self.layout.reach.look(os.path.dirname(path)) and _is_there(path)

    def _was_taken_over(self, name: str, generation: int) -> bool:
        """Returns whether the turn of this lease's overdue holder was taken over; the holder has failed since.

        The lease file of the next generation is enough: if its holder is dead too, or had its write dropped, the caller
        gets that lease at once.
        """
        if generation + 1 >= _GENERATIONS:
            return False
        return _is_there(self.layout.lease(name, generation + 1))

    def timeout_seconds(self, cost_ns: int) -> float:
        """Returns how long a waiter waits for a holder."""
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


# The result of a poll of a key on a network file system while nothing has changed: see :meth:`CompileOnce.poll`.
_NOT_YET: Final = (False, None)


class _Wait:
    """One caller's wait for one key."""

    def __init__(self, once: CompileOnce, name: str, label: str) -> None:
        self._once = once
        self._name = name
        self._label = label
        self.generation = 0
        self._began = self._holder_since = time.monotonic()
        self._holder: tuple[str, int, int] | None = None
        # The time that the holder still has.
        self._left_seconds = 0.0
        self._has_paused = False
        self._polled: Hashable = None
        self._waiter = Waiter(once.layout, once.layout.bell(name), awaits_death=True)
        self._notices = list(_NOTICES)

    @functools.cached_property
    def _cost_ns(self) -> int:
        """The cost of the key's last compilation: read only once another process compiles."""
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
        self._has_paused = True
        waiter = self._waiter
        waiter.listen()
        ask_after = min(waiter.pace.ask_after(waiter.waited_seconds), self._left_seconds)
        ask = min(time.monotonic() + max(ask_after, LOCAL.shortest_seconds), until)
        # Local waiters look once more, now that they listen: that is two calls to the kernel, but on a network file
        # system two to the server.
        is_known = self._once.layout.is_network
        if is_known:
            self._polled = _NOT_YET
        while time.monotonic() < ask:
            if not is_known:
                older, self._polled = self._polled, self._once.poll(self._name, self.generation)
                if self._polled != older:
                    return
            is_known = False
            if waiter.sleep(ask):
                return

    def saw_failure(self) -> bool:
        """Returns whether the holder that this waited for failed, while another waiter looks at the lease."""
        holder = self._once.holder(self._name, self.generation) if self._has_paused else None
        return holder is not None and holder.has_failed

    def end_served(self, loaded: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """End, and count the look-up that missed as a hit, which ``loaded`` is by itself. Returns ``loaded``."""
        self.end()
        counts = self._once.counts
        counts.misses -= 1
        if self._has_paused:
            counts.note_wait(self._name, time.monotonic() - self._began)
        return loaded

    def end(self) -> None:
        """Remove the bell, for which no process waits any more."""
        if self._waiter.has_bell:
            with contextlib.suppress(OSError):
                self._once.layout.reach.unlink(self._once.layout.bell(self._name))

    def _see(self, holder: Holder) -> None:
        who = (holder.token, holder.pid, holder.start_ns)
        if who != self._holder:
            self._holder, self._holder_since = who, time.monotonic()
            self._waiter.watch(holder.pid if holder.token == myself().host else None)
        while self._notices and time.monotonic() - self._began > self._notices[0][0]:
            _, level, what = self._notices.pop(0)
            _log.log(level, "%s for %s", what, self._in_words(holder))

    def _age_seconds(self, holder: Holder | None) -> float:
        waited = time.monotonic() - self._holder_since
        # The clock of another host means nothing here. And a record that was just read may be a dead holder's: the next
        # holder locks the file some microseconds before it writes its own record.
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
    """Returns a value that changes when a lease file is made again or written; ``None`` if there is no file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


#: The waits and turns of one thread.
_Turns: TypeAlias = "weakref.WeakValueDictionary[str, _Wait | LeaseTurn]"


def _turn_of_handler(turns: _Turns, name: str) -> LeaseTurn:
    """Returns a turn for a signal handler that interrupted its own thread's wait for the same turn.

    Raises :class:`ReentrantComputeError` in the midst of the computation.
    """
    found = turns.get(name)
    if isinstance(found, LeaseTurn) and found.has_begun:
        raise ReentrantComputeError(f"the computation of entry {name} asked for that entry itself")
    return LeaseTurn(turns, name, None)


def _follows_failure(lease: Lease) -> bool:
    """Returns whether the holder before this one failed a moment ago; then releases the lease."""
    previous = lease.previous
    if previous is None or not previous.has_failed:
        return False
    lease.release(failed_ns=previous.failed_ns)
    return True

# SPDX-License-Identifier: Apache-2.0
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
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from lockcache.errors import ReentrantComputeError
from lockcache.filestream.compile_once.costs import CostTable
from lockcache.filestream.compile_once.lease import GENERATIONS, Holder, LeaseTurn, Turns
from lockcache.filestream.disk import LOCAL, Layout, Waiter, myself
from lockcache.filestream.entry import Load
from lockcache.fork import after_fork_in_child
from lockcache.serving import watch

_log = logging.getLogger("lockcache")

#: Without another wish: a holder has a minute, or four times what compiling that key took the last time.
_TIMEOUT_SECONDS: Final = 60.0
_TIMEOUT_COSTS: Final = 4
# A bound on what the table states: other users may write it, and no kernel takes a quarter of an hour.
_LONGEST_TIMEOUT_SECONDS: Final = 3600.0

# The times of waiting after which a waiter logs it. A WARNING appears on stderr, also in a program without logging.
_NOTICES: Final = ((2.0, logging.INFO, "waiting"), (10.0, logging.WARNING, "still waiting"))
_SETTLED_SECONDS: Final = 0.05


class Counts(Protocol):
    """Where look-ups are counted: :class:`~lockcache.filestream.entry.EntryReader` for entries."""

    misses: int

    def note_wait(self, name: str, seconds: float) -> None:
        """Count that a caller who was served had waited."""


class CompileOnce:
    """Decides whose turn it is, for one directory."""

    def __init__(self, layout: Layout, load: Load, counts: Counts, timeout_seconds: float | None) -> None:
        """``counts``: where ``load`` counts."""
        self.layout = layout
        self.counts = counts
        #: Reads an entry.
        self.load = load
        self._timeout_seconds = timeout_seconds
        self.costs = CostTable(layout)
        # What each thread is waiting for or computing now: if it asked for the same key again, it would wait for
        # itself. Weak references, so that each ends with the turn, wherever an interrupt comes.
        self._computing = threading.local()
        self._has_folder = False
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

    def wait_or_turn(
        self, name: str, label: str, in_words: Callable[[], str] = str, *, until: float = math.inf
    ) -> tuple[bytes, bytes] | LeaseTurn:
        """Returns the entry once another process published it, or this caller's turn to compute it.

        ``label`` tells people what the entry is; ``in_words`` is asked where there is none, and this waits for long. If
        another caller still has the turn at ``until`` (monotonic seconds), returns a turn for which no one waits.

        For after a look-up that was counted as a miss. While this waits it counts as neither, and served as a hit.

        Raises :class:`ReentrantComputeError` if this thread is computing it already.
        """
        try:
            turns: Turns = self._computing.turns
        except AttributeError:
            turns = self._computing.turns = weakref.WeakValueDictionary()
        if name in turns:
            return self._turn_of_handler(turns, name)
        turn = LeaseTurn(self.layout, name, turns)
        wait: _Wait | None = None
        while not self._take(turn, label):
            if wait is None:
                wait = _Wait(self, turn, label, in_words)
            outcome = self._wait_for_other(turn, wait, until)
            if outcome is not None:
                return outcome
        loaded = self.look(name, is_last=True)
        if loaded is not None:
            turn.end(was_stored=True)
            return self._served(wait, loaded)
        if turn.after_failure:
            turn.pass_failure_on()
        elif wait is not None and not turn.is_held:  # leases cannot be had any more
            wait.end()
        return turn

    def _take(self, turn: LeaseTurn, label: str) -> bool:
        """Take the lease. Returns whether the turn is the caller's: also where leases cannot be had."""
        try:
            if not self._has_folder:  # else a symlink may stand there, since before the directory was opened
                self.layout.reach.make_folder(self.layout.leases)
                self._has_folder = True
            return turn.take(label)
        except OSError as error:
            _log.debug("%s: no leases here (%s): every process compiles for itself", self.layout.root, error)
            return True

    def _wait_for_other(self, turn: LeaseTurn, wait: _Wait, until: float) -> tuple[bytes, bytes] | LeaseTurn | None:
        """Wait until it is time to ask for the lease again. Returns the entry, or the turn if nobody is waited for."""
        # A waiter that did not get the lease has just looked.
        if wait.is_over(until):
            return turn
        self.counts.misses -= 1
        try:
            wait.pause(until)
        finally:
            self.counts.misses += 1
        # Look before asking for the lease: all waiters wake at once, and taking a free lease makes and removes a file.
        loaded = self.look(turn.name)
        return None if loaded is None else self._served(wait, loaded)

    def _served(self, wait: _Wait | None, loaded: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Count the look-up that missed as a hit, which ``loaded`` is by itself. Returns ``loaded``."""
        self.counts.misses -= 1
        if wait is not None:
            wait.end_served()
        return loaded

    def _turn_of_handler(self, turns: Turns, name: str) -> LeaseTurn:
        """Returns a turn for a signal handler that interrupted its own thread's wait for the same turn.

        Raises :class:`ReentrantComputeError` in the midst of the computation.
        """
        found = turns.get(name)
        if found is not None and found.has_begun:
            raise ReentrantComputeError(f"the computation of entry {name} asked for that entry itself")
        return LeaseTurn(self.layout, name, turns)

    def look(self, name: str, *, is_last: bool = False) -> tuple[bytes, bytes] | None:
        """Returns the entry if it is published. A look that finds nothing is not counted as a miss.

        ``is_last``: if it finds nothing, the caller computes. That is worth the calls by which a client of NFS is sure.
        """
        if not self.layout.hosts.has(self.layout.entry(name), is_sure=is_last):
            return None
        loaded = self.load(name)
        self.counts.misses -= loaded is None  # damaged, or removed just now
        return loaded

    def poll(self, name: str, generation: int) -> Hashable:
        """Returns whether the entry is there, and the state of the lease file: two calls, so that many may poll them.

        The file is removed when its holder gives up, and written when a process takes the lease or drops a write. On a
        network file system, where each of the two is a call to the server, waiters only ask for the lease.
        """
        hosts = self.layout.hosts
        return hosts.has(self.layout.entry(name)), hosts.state_of(self.layout.lease(name, generation))

    def timeout_seconds(self, cost_ns: int) -> float:
        """Returns how long a waiter waits for a holder."""
        if self._timeout_seconds is not None:
            return self._timeout_seconds
        return max(_TIMEOUT_SECONDS, min(_TIMEOUT_COSTS * cost_ns / 1e9, _LONGEST_TIMEOUT_SECONDS))

    def _after_fork_in_child(self) -> None:
        # A child forked inside compute is a caller of its own: its parent's turn is not its turn.
        self._computing = threading.local()


# The result of a poll of a key on a network file system while nothing has changed: see :meth:`CompileOnce.poll`.
_NOT_YET: Final = (False, None)


class _Wait:
    """One caller's wait for one key."""

    def __init__(self, once: CompileOnce, turn: LeaseTurn, label: str, in_words: Callable[[], str] = str) -> None:
        self._once = once
        self._turn = turn
        self._name = name = turn.name
        self._label, self._in_words = label, in_words
        self._generation = turn.generation
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
        """Look at the holder. Returns whether it is waited for no longer.

        That is where even the last generation had its time, after a failure, and from ``until`` on.
        """
        turn = self._turn
        if turn.generation != self._generation:  # the lease that was free had been taken over
            self._go_on()
        holder = turn.other
        # The holder that this waited for failed, while another waiter looks at the lease.
        if holder is not None and holder.has_failed and self._has_paused:
            turn.after_failure = True
            return True
        if holder is not None:
            self._see(holder)
        self._left_seconds = self._once.timeout_seconds(self._cost_ns) - self._age_seconds(holder)
        if self._left_seconds < 0:
            turn.generation += 1
            self._go_on()
        if turn.generation >= GENERATIONS:
            self.end()
            return True
        return time.monotonic() >= until  # and the bell stays for others

    def _go_on(self) -> None:
        """Look at the turn's generation from now on."""
        self._generation = self._turn.generation
        self._holder_since = time.monotonic()
        self._left_seconds = 0.0

    def pause(self, until: float) -> None:
        """Sleep until the entry is there, the lease was given up or fell, or it is time to ask for it again.

        Not beyond ``until``, in monotonic seconds.
        """
        if watch.is_followed and not self._has_paused:
            # Over when nobody refers to this wait any more: it ends in many ways.
            weakref.finalize(
                self, watch.begin("wait for", self._label or self._in_words() or self._name)
            ).atexit = False
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
                older, self._polled = self._polled, self._once.poll(self._name, self._generation)
                if self._polled != older:
                    return
            is_known = False
            if waiter.sleep(ask):
                return

    def end_served(self) -> None:
        """End, and count the wait."""
        self.end()
        if self._has_paused:
            self._once.counts.note_wait(self._name, time.monotonic() - self._began)

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
            _log.log(level, "%s for %s", what, self._describe(holder))

    def _age_seconds(self, holder: Holder | None) -> float:
        waited = time.monotonic() - self._holder_since
        # The clock of another host means nothing here. And a record that was just read may be a dead holder's: the next
        # holder locks the file some microseconds before it writes its own record.
        if holder is None or holder.token != myself().host or waited < _SETTLED_SECONDS:
            return waited
        return max(waited, (time.monotonic_ns() - holder.start_ns) / 1e9)

    def _describe(self, holder: Holder) -> str:
        last = f"it took {self._cost_ns / 1e9:.1f} s the last time" if self._cost_ns else "for the first time"
        label = holder.label or self._label or self._in_words()
        what = f"{label} ({self._name[:16]})" if label.isprintable() and label else self._name[:16]
        return f"process {holder.pid} on {holder.host} to compile {what}: {last}"

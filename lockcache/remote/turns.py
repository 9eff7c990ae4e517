# SPDX-License-Identifier: Apache-2.0
"""One compilation for all nodes that use a server: whose turn it is, by a lease that the server keeps.

Keeps invariant 5 (death is free): a lease ends by itself three seconds after its holder renewed it last, so a holder
that is killed is taken over within four. Keeps invariant 7 (never take the job down): where a server gives no leases,
or no answer, the caller has its turn at once. Two holders at once do no harm: the values that they store under one key
are equally right, and each is whole.

A turn that ended by a store gives its lease back after the value was sent: those who wait for it find it. One that
ended by a failure leaves its lease as that of a failure, for as long as a lease lives: all who wait, and those who come
in that time, compute for themselves, none after another. After a kill, a turn that was given up, and a store that was
lost, nothing says so, and one of those who wait has the next turn.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from lockcache.fork import after_fork_in_child
from lockcache.remote.sending import do_nothing
from lockcache.remote.servers import LeaseAnswer, Transport, read_in_parallel

if TYPE_CHECKING:
    from lockcache.remote.store import RemoteStore

__all__ = ["RemoteTurn", "take_turn"]

LEASE_SECONDS: Final = 3.0
_BEAT_SECONDS: Final = 1.0
_RENEWED_AT_ONCE: Final = 32
#: The usual wait for a holder, the same as on this node.
_TIMEOUT_SECONDS: Final = 60.0
# Waiters ask again after a share of the time that they have waited. A thousand nodes ask a server 8,000 times a second.
_SHORTEST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.25


class RemoteTurn:
    """This process's turn to compute an entry. It ends by :meth:`end`, and when nothing refers to it."""

    def __init__(self, store: RemoteStore, name: str, token: str | None, *, after_failure: bool = False) -> None:
        """``token``: that of a lease, or ``None`` for a turn for which nobody waits."""
        #: Whether the turn before it failed a moment ago, so that nobody needs to wait for this one.
        self.after_failure = after_failure
        self._store = store
        self._name = name
        self._token = token
        if token is not None:
            _heart.beat_for(self)

    @property
    def store(self) -> RemoteStore:
        """The store of the server that keeps the lease."""
        return self._store

    @property
    def lease(self) -> dict[str, str]:
        """The lease's token by its name; empty for a turn for which no one waits."""
        token = self._token
        return {} if token is None else {self._name: token}

    @property
    def is_held(self) -> bool:
        """Whether other nodes wait for this turn."""
        return self._token is not None

    def end(self, failed: bool = False) -> None:
        """Let the others in, once what was stored so far has been sent: one, or all if it failed. May come twice."""
        token, self._token = self._token, None
        if token is not None:
            name, link = self._name, self._store.link
            release = partial(_release, name, token, LEASE_SECONDS if failed else 0)
            link.sender().send(link, lambda: link.tell(release), do_nothing)

    def forget(self) -> None:
        """Forget the turn, in a forked child: the turn is its parent's."""
        self._token = None


class _Heart:
    """Renews the leases of this process, by one thread, for as long as there are any."""

    def __init__(self) -> None:
        self._turns: weakref.WeakSet[RemoteTurn] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._is_running = False
        after_fork_in_child(self)

    def beat_for(self, turn: RemoteTurn) -> None:
        """Renew the lease of ``turn`` until it ends, or nothing refers to it."""
        with self._lock:
            self._turns.add(turn)
            if self._is_running:
                return
            try:
                threading.Thread(target=self._run, name="lockcache leases", daemon=True).start()
            except RuntimeError:  # no more threads: the lease ends by itself, and another node may compile too
                return
            self._is_running = True

    def _run(self) -> None:
        while True:
            time.sleep(_BEAT_SECONDS)
            with self._lock:
                turns = [turn for turn in self._turns if turn.is_held]
                if not turns:
                    self._is_running = False
                    return
            leases: dict[RemoteStore, dict[str, str]] = {}
            for turn in turns:
                leases.setdefault(turn.store, {}).update(turn.lease)
            turns.clear()  # or the last would be held until the next beat
            del turn
            for store, tokens in leases.items():
                store.link.tell(partial(_renew, tokens))

    def _after_fork_in_child(self) -> None:
        for turn in self._turns:
            turn.forget()
        self._turns = weakref.WeakSet()
        self._lock = threading.RLock()
        self._is_running = False


def _renew(tokens: dict[str, str], transport: Transport) -> None:
    """Renew the leases (tokens by name) for three seconds. All at once: one after the other, many would have lapsed."""

    def renew(name: str) -> None:
        transport.renew(name, tokens[name], LEASE_SECONDS)

    read_in_parallel(tokens, renew, _RENEWED_AT_ONCE)


_heart = _Heart()


def _release(name: str, token: str, failed_seconds: float, transport: Transport) -> None:
    transport.release(name, token, failed_seconds)


class Lookups(Protocol):
    """Counters of look-ups."""

    misses: int
    waits: int


def take_turn(
    store: RemoteStore,
    name: str,
    timeout_seconds: float | None = None,
    *,
    counts: Lookups | None = None,
    has_waited: bool = False,
) -> tuple[bytes, bytes] | RemoteTurn:
    """Returns the entry once the node that computes it stored it, or this process's turn to compute it.

    For after a look-up that ``store``, and ``counts``, counted as a miss. While this waits it counts as neither, and
    served as a hit; ``has_waited``: it waited before, for a thread. A holder is waited for as long as it lives and the
    server answers, ``timeout_seconds`` at most.
    """
    missed = [store.counts, *([] if counts is None else [counts])]
    if not store.url.may_lease:
        # Not asked for: an answer without the server would count as a sign that it works.
        return RemoteTurn(store, name, None)
    began = time.monotonic()
    longest = (_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds) * store.link.patience.waits_share
    token = secrets.token_hex(16)
    is_waiting = False
    while True:
        answer = store.link.ask(partial(_try_lease, name, token, has_waited), is_waiting=is_waiting, changes=True)
        has_failed = answer is LeaseAnswer.FAILED
        turn = RemoteTurn(store, name, token if answer is LeaseAnswer.TAKEN else None, after_failure=has_failed)
        if answer is None or answer is LeaseAnswer.NONE:
            return turn
        # Also with the lease: after our miss its holder may have stored the entry and given the lease back.
        is_waiting = answer is LeaseAnswer.HELD
        loaded = store.look(name, is_waiting=is_waiting)
        if loaded is not None:
            store.link.patience.waits_share = 1.0
            turn.end()
            _recount(missed, misses=-1, waits=has_waited)
            return loaded
        waited = time.monotonic() - began
        if waited > longest and is_waiting:
            store.link.patience.waits_share /= 2
        if not is_waiting or waited > longest:
            return turn
        pause = min(max(waited * 0.2, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        has_waited = True
        _recount(missed, misses=-1)
        try:
            time.sleep(pause * (0.5 + random.random() / 2))
        finally:
            _recount(missed, misses=1)


def _recount(lookups: Iterable[Lookups], *, misses: int, waits: int = 0) -> None:
    for each in lookups:
        each.misses += misses
        each.waits += waits


def _try_lease(name: str, token: str, has_waited: bool, transport: Transport) -> LeaseAnswer:
    if not transport.has_leases:
        return LeaseAnswer.NONE
    return transport.try_lease(name, token, LEASE_SECONDS, has_waited=has_waited)

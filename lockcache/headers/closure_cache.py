# SPDX-License-Identifier: Apache-2.0
"""Closures remembered, each for as long as the facts on which it rests hold: in the process, and saved for others.

Keeps invariant 1 (a hit is whole): a remembered digest is given only after every file, every miss and every directory
was looked at again. Safe for threads, which walk at the same time rather than wait for each other, and for fork: a
child keeps what its parent knew. Not promised: to see a change that happens between the look and the compilation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial

from lockcache.fork import after_fork_in_child
from lockcache.headers import saved
from lockcache.headers.closure import Closure, Request, walk
from lockcache.headers.files_seen import hold
from lockcache.headers.saved import ClosureStore

#: Facts held in all, at about 0.4 KB each: five hundred closures of 370 headers, 100 MB at most.
_FACTS_LIMIT = 250_000
_WALKS = 3


def closure_of(request: Request, store: ClosureStore | None = None) -> Closure:
    """Returns the closure of includes as it is now. ``store``: where processes save it for each other."""
    known = _closures.get(request)
    if known is not None and hold(known.facts):
        return known
    if store is None:
        closure = _walk_again_if_a_file_goes(request)
    else:
        closure = saved.load_or_save(request, store, partial(_walk_again_if_a_file_goes, request))
    if closure.settled:
        _closures.put(request, closure)
    return closure


def _walk_again_if_a_file_goes(request: Request) -> Closure:
    # Someone deleted a header between our stat and our open: look again, it may be found further on now. Not for ever.
    for _ in range(_WALKS - 1):
        try:
            return walk(request)
        except FileNotFoundError:
            continue
    return walk(request)


class _Closures:
    """Closures by request, the least recently used out first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Request, Closure] = OrderedDict()
        self._facts = 0
        self._after_fork_in_child()
        after_fork_in_child(self)

    def get(self, request: Request) -> Closure | None:
        with self._lock:
            found = self._known.get(request)
            if found is not None:
                self._known.move_to_end(request)
            return found

    def put(self, request: Request, closure: Closure) -> None:
        with self._lock:
            self._remove_locked(request)
            self._known[request] = closure
            self._facts += closure.facts.weight
            # The newest stays, however large: it is what the next call asks for.
            while self._facts > _FACTS_LIMIT and len(self._known) > 1:
                self._remove_locked(next(iter(self._known)))

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self._facts = 0

    def _remove_locked(self, request: Request) -> None:
        """Requires: the lock."""
        gone = self._known.pop(request, None)
        if gone is not None:
            self._facts -= gone.facts.weight

    def _after_fork_in_child(self) -> None:
        # A thread of the parent may have held the lock, and been between the two lines that keep the count.
        self._lock = threading.RLock()
        self._facts = sum(closure.facts.weight for closure in self._known.values())


_closures = _Closures()

# SPDX-License-Identifier: Apache-2.0
"""Repairs after a fork: of locks that a thread of the parent held, and descriptors that the child shares with it.

Keeps invariant 5 (death is free) for fork: a child never waits for a thread that it does not have, and never shares a
lock with its parent. One registry for the whole package, because the interpreter's own has no way to take an entry
back.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol

#: Hold this around a deferred import, so that no fork happens during it. A child that is forked while another thread
#: imports finds the module's lock held by a thread that it does not have, and would wait for ever.
unforked: Final = threading.RLock()


class _Forkable(Protocol):
    def _after_fork_in_child(self) -> None: ...


_live: weakref.WeakSet[_Forkable] = weakref.WeakSet()


def after_fork_in_child(thing: _Forkable) -> None:
    """Call ``thing._after_fork_in_child()`` in every forked child, for as long as ``thing`` lives."""
    _live.add(thing)


def _run() -> None:
    for thing in list(_live):
        thing._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run)
    os.register_at_fork(before=unforked.acquire, after_in_parent=unforked.release, after_in_child=unforked.release)

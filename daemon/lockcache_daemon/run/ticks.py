# SPDX-License-Identifier: Apache-2.0
"""Ticks: each directory's ticks run in parallel to those of the others, so that no directory holds up the rest.

Keeps the daemon to the spirit of invariant 4 (readers never wait): a sweep of a million entries, a first count, or a
file server that hangs costs its own directory's ticks and no other's. With several directories each tick runs in a
thread, and the main thread waits for it a moment: nearly all ticks are done by then, one after the other, as if there
were no threads. A tick that takes longer goes on in parallel; until it is done no other thread may use its keeper, see
:attr:`TickRunner.busy`.

Not promised: that the daemon ends while the kernel hangs in a dead mount.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from lockcache_daemon.keeper import Keeper

# An idle tick takes a millisecond, a sweep of some thousand entries as long as this.
_PATIENCE_SECONDS: Final = 0.25

# So many directories may be slow at once; others wait for one of them to be done.
_MOST_THREADS: Final = 256


class TickRunner:
    """Runs ticks in threads. For the main thread. Use it as a context: at its end no tick runs any more."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[Keeper, Future[None]] = {}

    def __enter__(self) -> TickRunner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)  # the signal to stop ends the ticks that run, within a second
        self._running.clear()

    @property
    def busy(self) -> Collection[Keeper]:
        """The keepers whose tick goes on. They must not be touched."""
        return self._running.keys()

    def run(self, keeper: Keeper, *, is_alone: bool) -> None:
        """Run a tick of ``keeper``, to its end if it ``is_alone``. Raises only :class:`Stopped`."""
        if is_alone and keeper not in self._running:
            keeper.tick()
            return
        tick = self._running.get(keeper)
        if tick is None:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="tick")
            tick = self._running[keeper] = self._pool.submit(keeper.tick)
            wait([tick], _PATIENCE_SECONDS)
        if tick.done():
            del self._running[keeper]
            tick.result()

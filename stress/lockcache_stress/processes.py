# SPDX-License-Identifier: Apache-2.0
"""Processes: starts them out of Ctrl-C's reach, has them begin each phase together, and ends them.

Ctrl-C reaches every process of a terminal's group, but here only the parent may act on it, and ends its children.
Children that ended by Ctrl-C themselves would count as crashes, print tracebacks of their imports, and leave the parent
waiting.

Whatever ends the ``with`` block of a :class:`Group` (Ctrl-C, a member that dies or hangs, an error), no member is left.
The herd, the GPU kit and the benchmark rely on this, whose members do a fixed piece of work. The workers of a scenario,
which share counters and are sampled, are in :mod:`lockcache_stress.run.workers`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.pool import Pool
from multiprocessing.process import BaseProcess
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
# Importing cuda.core in 64 processes on two busy cores takes minutes; a lease that hangs would be waited for for ever.
_LIMIT_SECONDS: Final = 300.0


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT, so that processes that are started in this block inherit the mask and never get the signal.

    A SIGINT that reaches this process meanwhile is delivered when the block ends.
    """
    # Starting the tracker unblocks SIGINT in the end, so the tracker has to be running before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_pool(processes: int) -> Pool:
    """Returns a pool of spawned processes that Ctrl-C does not reach, for a ``with`` block."""
    with interrupts_blocked():
        return multiprocessing.get_context("spawn").Pool(processes)


def wait_until(condition: Callable[[], object], seconds: float, *, every_seconds: float = 0.01) -> bool:
    """Wait until ``condition()``, for at most ``seconds``. Returns whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_seconds)
    return True


def die_with_parent() -> None:
    """Have the kernel end this process when its parent is SIGKILLed, also while this process is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Group:
    """Member processes, each of which runs ``target(*given, index, connection, gates)``.

    In each phase a member says that it is ready and waits for its gate (:func:`take_turn`), works, and answers.
    """

    def __init__(
        self,
        target: Callable[..., None],
        given: tuple[object, ...],
        processes: int,
        phases: int,
        limit_seconds: float = _LIMIT_SECONDS,
        *,
        needs_all: bool = False,
        preload: Sequence[str] = (),
    ) -> None:
        """``needs_all``: whether a member that dies is an error.

        ``preload``: modules that are imported once, in a process from which all members are forked.
        """
        self._needs_all = needs_all
        self._target, self._given = target, given
        self._count = processes
        self._limit_seconds = limit_seconds
        #: The deaths of members that should not have died.
        self.deaths: list[str] = []
        self._context: Any = multiprocessing.get_context("forkserver" if preload else "spawn")
        if preload:
            self._context.set_forkserver_preload(list(preload))
        # Not an Event: a process that dies while it waits for one makes set() hang.
        pairs = [self._context.Pipe(duplex=False) for _ in range(phases)]
        self._gates = [gate for gate, _ in pairs]
        self._latches = [latch for _, latch in pairs]
        self._processes: dict[Connection, tuple[int, BaseProcess]] = {}

    def __enter__(self) -> Group:
        try:
            for index in range(self._count):
                mine, its = self._context.Pipe()
                given = (*self._given, index, its, self._gates)
                self._processes[mine] = index, start_process(self._target, *given, context=self._context)
                its.close()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for _index, process in self._processes.values():
            process.kill()
        for _index, process in self._processes.values():
            process.join()
        for connection in (*self._processes, *self._gates, *self._latches):
            connection.close()

    def open_gate(self, number: int) -> None:
        """Let all members begin at once."""
        self._latches[number].close()

    def run_phase(
        self,
        number: int,
        meanwhile: Callable[[], object] | None = None,
        every_seconds: float = 0.05,
        *,
        before: Callable[[], object] = lambda: None,
    ) -> list[Any]:
        """Returns the answers of a phase, which begins when all members are ready and ``before`` has returned."""
        self.gather()
        before()
        self.open_gate(number)
        return self.gather(meanwhile, every_seconds)

    def gather(self, meanwhile: Callable[[], object] | None = None, every_seconds: float = 0.05) -> list[Any]:
        """Returns one message of every member. A member that died or hangs counts as a death, and is not asked again.

        ``meanwhile`` is called again and again while members are at work. Raises RuntimeError for a death if all
        members are needed.
        """
        found: list[Any] = []
        missing, deadline = set(self._processes), time.monotonic() + self._limit_seconds
        while missing:
            left_seconds = max(0.0, deadline - time.monotonic())
            heard = wait(list(missing), left_seconds if meanwhile is None else min(left_seconds, every_seconds))
            if meanwhile is not None:
                meanwhile()
            if not heard and time.monotonic() >= deadline:
                self._bury(missing, f"still hung after {self._limit_seconds:.0f} s")
                missing = set()
            for connection in [known for known in missing if known in heard]:
                missing.discard(connection)
                try:
                    found.append(connection.recv())
                except (EOFError, OSError):  # a reset, if the member died with unread data
                    self._bury({connection}, "")
        if self.deaths and self._needs_all:
            raise RuntimeError(f"{'; '.join(self.deaths[:4])}; what it said is above")
        return found

    def _bury(self, connections: set[Connection], how: str) -> None:
        for connection in connections:
            index, process = self._processes.pop(connection)
            if how:
                process.kill()
            process.join()
            self.deaths.append(f"worker {index} {how or f'ended with exit code {process.exitcode}'}")
            connection.close()


def start_process(target: Callable[..., None], *given: object, context: Any = None) -> BaseProcess:
    """Start one process, spawned unless a ``context`` is given, that Ctrl-C does not reach."""
    context = context or multiprocessing.get_context("spawn")
    process: BaseProcess = context.Process(target=target, args=given, daemon=True)
    with interrupts_blocked():
        process.start()
    return process


def take_turn(parent: Connection, gate: Connection) -> None:
    """Report, in a member, that it is ready, and wait until the parent opens the gate."""
    parent.send(None)
    # A gate never sends anything. When the parent closes its end, all waiting members wake up at once.
    try:
        gate.recv()
    except EOFError:
        return

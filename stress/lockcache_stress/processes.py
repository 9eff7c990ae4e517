# SPDX-License-Identifier: Apache-2.0
"""Processes: starts them out of Ctrl-C's reach, has them begin each phase together, and ends them.

Ctrl-C reaches every process of a terminal's group, but here only the parent may act on it, and ends its children.
Children that ended by Ctrl-C themselves would count as crashes, print tracebacks of their imports, and leave the parent
waiting.

Whatever ends the ``with`` block of a :class:`Group` (Ctrl-C, a member that dies or hangs, an error), no member is left.
The herd, the GPU kit and the benchmark rely on this, whose members do a fixed piece of work. The workers of a scenario,
which share counters and are sampled, are in :mod:`lockcache_stress.run.workers`.

A limit finds a process that hangs, and not a machine that is busy: :class:`Patience`.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.pool import Pool
from multiprocessing.process import BaseProcess
from typing import Any, Final

import psutil

_PR_SET_PDEATHSIG: Final = 1
# Importing cuda.core in 64 processes on two busy cores takes minutes; a lease that hangs would be waited for for ever.
_LIMIT_SECONDS: Final = 300.0
# A look lists all processes, and reads a file of each thread below this one.
_LOOK_SECONDS: Final = 1.0
#: The most by which a limit is stretched.
MOST_STRETCHED: Final = 20


class Patience:
    """A limit of time, which passes while all of this process and those below it that want a processor have one.

    With forty processes on two cores an operation that needs 0.3 s of a processor takes half a minute: a limit in the
    wall's time that finds a hang soon would judge the machine. So the kernel's count of how long each thread was ready
    to run and did not is taken off, of the thread that waited longest, since the others may wait for it. Nothing is
    taken off while all sleep, as processes do that wait for each other for ever. Between two looks not more passes than
    the time in which a look is due: a process that was stopped, as by Ctrl-Z, has given nobody a chance to answer.
    """

    def __init__(self, seconds: float) -> None:
        """``seconds`` are stretched :data:`MOST_STRETCHED` times at most, for threads that run in a circle."""
        self._seconds = seconds
        self._looked_at = time.monotonic()
        # By thread; none before the first look, until which all time counts.
        self._delays: dict[int, float] = {}
        self._passed_seconds = self._seen_seconds = 0.0

    def is_over(self) -> bool:
        """Returns whether the time is up. To be asked again and again: what is seen between two looks is taken off."""
        now, due_seconds = time.monotonic(), min(_LOOK_SECONDS, self._seconds)
        if now - self._looked_at < due_seconds:
            return False
        elapsed_seconds, self._looked_at = now - self._looked_at, now
        before, self._delays = self._delays, _delays()
        grown = (delay - before.get(thread, delay) for thread, delay in self._delays.items())
        self._passed_seconds += min(due_seconds, max(0.0, elapsed_seconds - max(grown, default=0.0)))
        self._seen_seconds += due_seconds
        return self._passed_seconds >= self._seconds or self._seen_seconds > self._seconds * MOST_STRETCHED


def _delays() -> dict[int, float]:
    """Returns the seconds for which each thread of this process and of those below it was ready and did not run."""
    found = {}
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                with open(f"/proc/{process.pid}/task/{thread}/schedstat") as file:
                    found[int(thread)] = int(file.read().split()[1]) / 1e9
    return found


@contextlib.contextmanager
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
    """Wait until ``condition()``, for at most ``seconds`` of :class:`Patience`. Returns whether it came true."""
    patience = Patience(seconds)
    while not condition():
        if patience.is_over():
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
        missing, patience = set(self._processes), Patience(self._limit_seconds)
        while missing:
            heard = wait(list(missing), _LOOK_SECONDS if meanwhile is None else every_seconds)
            if meanwhile is not None:
                meanwhile()
            if patience.is_over() and not heard:
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

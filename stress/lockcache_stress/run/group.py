"""Groups: spawned processes that begin each phase at the same moment, and answer their parent by messages.

Whatever ends the ``with`` block of a :class:`Group` (Ctrl-C, a member that dies or hangs, an error), no member is left.
Relied on by the herd and the GPU kit, whose members do a fixed piece of work; the workers of a scenario, which share
counters and are sampled, are started by :mod:`.runner`.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from lockcache_stress.processes import interrupts_blocked

__all__ = ["Group", "start_process", "wait_for_gate"]

# Importing cuda.core in 64 processes on two busy cores takes minutes; a hung lease would take for ever.
_LIMIT_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.05


class Group:
    """Member processes, each of which runs ``target(*given, index, connection, gates)``.

    A member says that it is ready for a phase by sending ``None``, waits for the phase's gate with
    :func:`wait_for_gate`, works, and sends its answer.
    """

    def __init__(
        self,
        target: Callable[..., None],
        given: tuple[object, ...],
        processes: int,
        phases: int,
        limit_seconds: float = _LIMIT_SECONDS,
    ) -> None:
        self._target, self._given = target, given
        self._count = processes
        self._limit_seconds = limit_seconds
        #: How members ended that should not have.
        self.deaths: list[str] = []
        context = multiprocessing.get_context("spawn")
        # Not an Event: a process that dies while it waits for one makes set() hang.
        pairs = [context.Pipe(duplex=False) for _ in range(phases)]
        self._gates = [gate for gate, _ in pairs]
        self._latches = [latch for _, latch in pairs]
        self._processes: dict[Connection, tuple[int, SpawnProcess]] = {}

    def __enter__(self) -> Group:
        try:
            for index in range(self._count):
                mine, its = multiprocessing.get_context("spawn").Pipe()
                self._processes[mine] = index, start_process(self._target, *self._given, index, its, self._gates)
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
        """Let all of them begin at once."""
        self._latches[number].close()

    def gather(self, meanwhile: Callable[[], object] | None = None) -> list[Any]:
        """Returns one message of every member. One that died or hangs is a death, and is asked nothing more.

        ``meanwhile`` is called again and again, some twenty times a second, while members are at work.
        """
        found: list[Any] = []
        missing, deadline = set(self._processes), time.monotonic() + self._limit_seconds
        while missing:
            left_seconds = max(0.0, deadline - time.monotonic())
            heard = wait(list(missing), left_seconds if meanwhile is None else min(left_seconds, _LOOK_SECONDS))
            if meanwhile is not None:
                meanwhile()
            if not heard and time.monotonic() >= deadline:
                self._bury(missing, f"still hung after {self._limit_seconds:.0f} s")
                return found
            for connection in [known for known in missing if known in heard]:
                missing.discard(connection)
                try:
                    found.append(connection.recv())
                except (EOFError, OSError):  # a reset: it died with something unread
                    self._bury({connection}, "")
        return found

    def _bury(self, connections: set[Connection], how: str) -> None:
        for connection in connections:
            index, process = self._processes.pop(connection)
            if how:
                process.kill()
            process.join()
            self.deaths.append(f"worker {index} {how or f'ended with exit code {process.exitcode}'}")
            connection.close()


def start_process(target: Callable[..., None], *given: object) -> SpawnProcess:
    """Starts one spawned process that Ctrl-C does not reach."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=given, daemon=True)
    with interrupts_blocked():
        process.start()
    return process


def wait_for_gate(gate: Connection) -> None:
    """Waits, in a member, until the parent opens the gate."""
    # A gate never sends anything. When the parent closes its end, all who wait wake up at once.
    try:
        gate.recv()
    except EOFError:
        return

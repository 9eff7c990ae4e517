"""Groups: spawned processes that begin each phase at the same moment, and answer their parent by messages.

Whatever ends the ``with`` block of a :class:`Group` (Ctrl-C, a member that dies or hangs, an error), no member is left.
Relied on by the herd, the GPU kit and the benchmark, whose members do a fixed piece of work. The workers of a scenario,
which share counters and are sampled, are :class:`Workers`: :mod:`.runner` starts them, or MPI (:mod:`.mpi_workers`).
"""

from __future__ import annotations

import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from lockcache_stress.plan import Plan, now_us
from lockcache_stress.processes import interrupts_blocked, wait_until
from lockcache_stress.run.counters import Counters

__all__ = ["Group", "Workers", "start_process", "take_turn"]

# Importing cuda.core in 64 processes on two busy cores takes minutes; a hung lease would take for ever.
_LIMIT_SECONDS: Final = 300.0
# Spawning 32 interpreters on two cores takes some ten seconds, on a loaded machine much longer.
_READY_SECONDS: Final = 120.0
# Past the stop time a worker may finish what it has in hand: a compilation, or a put that waits for room.
_GRACE_SECONDS: Final = 30.0


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
        preload: Sequence[str] = (),
    ) -> None:
        """``preload``: modules that are imported once, in a process of which all members are forked, not by each."""
        self._target, self._given = target, given
        self._count = processes
        self._limit_seconds = limit_seconds
        #: How members ended that should not have.
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
        """Let all of them begin at once."""
        self._latches[number].close()

    def run_phase(
        self, number: int, meanwhile: Callable[[], object] | None = None, every_seconds: float = 0.05
    ) -> list[Any]:
        """Returns the answers of a phase, which begins when all members are ready. Raises RuntimeError if one died."""
        self.gather_all()
        self.open_gate(number)
        return self.gather_all(meanwhile, every_seconds)

    def gather_all(self, meanwhile: Callable[[], object] | None = None, every_seconds: float = 0.05) -> list[Any]:
        """As :meth:`gather`, where all of them are needed. Raises RuntimeError if one died or hangs."""
        found = self.gather(meanwhile, every_seconds)
        if self.deaths:
            raise RuntimeError(f"{'; '.join(self.deaths[:4])}; what it said is above")
        return found

    def gather(self, meanwhile: Callable[[], object] | None = None, every_seconds: float = 0.05) -> list[Any]:
        """Returns one message of every member. One that died or hangs is a death, and is asked nothing more.

        ``meanwhile`` is called again and again while members are at work.
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


def start_process(target: Callable[..., None], *given: object, context: Any = None) -> BaseProcess:
    """Start one process, spawned unless a ``context`` is given, that Ctrl-C does not reach."""
    context = context or multiprocessing.get_context("spawn")
    process: BaseProcess = context.Process(target=target, args=given, daemon=True)
    with interrupts_blocked():
        process.start()
    return process


def take_turn(parent: Connection, gate: Connection) -> None:
    """Say, in a member, that it is ready, and wait until the parent opens the gate."""
    parent.send(None)
    # A gate never sends anything. When the parent closes its end, all who wait wake up at once.
    try:
        gate.recv()
    except EOFError:
        return


class Workers(ABC):
    """The worker processes of one run, none of which is left when the ``with`` block ends."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.counters = Counters(plan)
        #: How workers ended that should not have.
        self.deaths: list[str] = []
        self.kills = 0

    @abstractmethod
    def __enter__(self) -> Workers: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def is_working(self) -> bool:
        """Whether any worker still has something to do; who died meanwhile is a death."""

    @abstractmethod
    def hung(self) -> list[str]:
        """Returns the names of those that are at work."""

    def pids(self) -> Iterator[int]:
        """Returns those of all workers that may be stopped for a moment."""
        return iter(())

    def kill_one(self) -> bool:
        """SIGKILL one at random, and start another in its place under a new writer number; whether there was one."""
        return False

    def wait_until_ready(self) -> None:
        """Wait until every worker has imported what it needs and opened the cache."""

        def are_ready() -> bool:
            return self.counters.total("ready") >= self._plan.processes or not self.is_working() or bool(self.deaths)

        if not wait_until(are_ready, _READY_SECONDS):
            raise TimeoutError(f"the workers did not start within {_READY_SECONDS:.0f} s")

    def go(self) -> None:
        """Let them begin."""
        self.counters.start(now_us(), self._plan.latest_stop_us())

    def finish(self) -> None:
        """Have them end, and wait for it; who does not end in time is a death, and is ended with the block."""
        self.counters.stop()
        wait_until(lambda: not self.is_working(), _GRACE_SECONDS)
        self.deaths += [f"{name} still hung {_GRACE_SECONDS:.0f} s after its time" for name in self.hung()]

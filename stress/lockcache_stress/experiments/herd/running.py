"""Runs one herd: references first, then all processes through both phases, then a look at what is left.

Whatever happens (Ctrl-C, a member that dies or hangs, an error here), no process is left when :func:`run_herd` ends.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.herd.member import Answer, Compiled, run_member, run_reference
from lockcache_stress.experiments.herd.outcome import HerdOutcome, Phase
from lockcache_stress.experiments.herd.plan import PHASES, HerdOptions, HerdPlan
from lockcache_stress.experiments.herd.sources import write_headers
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.processes import interrupts_blocked
from lockcache_stress.trouble import open_workspace

__all__ = ["run_herd"]

# Importing cuda.core in 64 processes on two busy cores takes minutes; a hung lease would take for ever.
_LIMIT_SECONDS: Final = 300.0


def run_herd(options: HerdOptions, show: Callable[[str, float, str], None]) -> HerdOutcome:
    """Run it. Raises :class:`UnusableError` where there is no NVRTC."""
    if not has_nvrtc():
        raise UnusableError("the herd needs cuda.core and NVRTC: pip install lockcache[cuda]")
    with open_workspace(options.directory) as space:
        plan = HerdPlan(options, space.cache, space.control)
        outcome = HerdOutcome(plan)
        cache = FileStreamProgramCache(plan.directory)
        before = len(cache)
        show("herd", 0.0, "references")
        references = _references(plan, outcome)
        with _Herd(plan, outcome) as herd:
            for number, name in enumerate(PHASES):
                show("herd", (1 + number) / 3, f"{options.processes} processes, {name}")
                _add_phase(plan, herd, outcome, references)
        outcome.entries = len(cache) - before
        outcome.lease_files = _count_files(os.path.join(plan.directory, "lockcache", "leases"))
        outcome.staged_files = _count_files(os.path.join(plan.directory, "tmp"))
        show("herd", 1.0, f"{outcome.phases[0].compiles} compiles")
        return outcome


def _add_phase(plan: HerdPlan, herd: _Herd, outcome: HerdOutcome, references: list[dict[int, Compiled]]) -> None:
    number = len(outcome.phases)
    herd.gather()  # all are ready, none reads a header
    write_headers(plan, number)
    began = time.monotonic()
    herd.open_gate(number)
    answers = herd.gather()
    seconds = time.monotonic() - began
    compiles = _count_lines(plan.compiled(number))
    outdated = references[number - 1] if number else {}
    outcome.phases.append(Phase(compiles, answers, seconds, references[number], outdated))


def _references(plan: HerdPlan, outcome: HerdOutcome) -> list[dict[int, Compiled]]:
    """Every kernel as it must be in each phase, compiled by one process with no cache.

    The headers are left as they are at first.
    """
    mine, its = multiprocessing.get_context("spawn").Pipe()
    process = _start(run_reference, plan, its)
    its.close()
    found: list[dict[int, Compiled]] = []
    try:
        for phase in range(len(PHASES)):
            write_headers(plan, phase)
            mine.send(None)
            answer: Answer = mine.recv()
            found.append(answer.compiled)
            outcome.alone_seconds = outcome.alone_seconds or answer.seconds
    except (EOFError, OSError) as error:
        raise RuntimeError("the process that compiles the references died; its error is above") from error
    finally:
        process.kill()
        process.join()
    write_headers(plan, 0)
    return found


class _Herd:
    """The member processes."""

    def __init__(self, plan: HerdPlan, outcome: HerdOutcome) -> None:
        self._plan = plan
        self._deaths = outcome.deaths
        context = multiprocessing.get_context("spawn")
        # Not an Event: a process that dies while it waits for one makes set() hang.
        pairs = [context.Pipe(duplex=False) for _ in PHASES]
        self._gates = [gate for gate, _ in pairs]
        self._latches = [latch for _, latch in pairs]
        self._processes: dict[Connection, tuple[int, SpawnProcess]] = {}

    def __enter__(self) -> _Herd:
        try:
            for index in range(self._plan.options.processes):
                mine, its = multiprocessing.get_context("spawn").Pipe()
                self._processes[mine] = index, _start(run_member, self._plan, index, its, self._gates)
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

    def gather(self) -> list[Any]:
        """One message of every member; who died or hangs is a death, and is asked nothing more."""
        found: list[Any] = []
        missing, deadline = set(self._processes), time.monotonic() + _LIMIT_SECONDS
        while missing:
            heard = wait(list(missing), max(0.0, deadline - time.monotonic()))
            if not heard:
                self._bury(missing, f"still hung after {_LIMIT_SECONDS:.0f} s")
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
            self._deaths.append(f"worker {index} {how or f'ended with exit code {process.exitcode}'}")
            connection.close()


def _start(target: Callable[..., None], *given: object) -> SpawnProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, args=given, daemon=True)
    with interrupts_blocked():
        process.start()
    return process


def _count_files(path: str) -> int:
    return sum(len(files) for _, _, files in os.walk(path))


def _count_lines(path: str) -> int:
    try:
        with open(path) as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0

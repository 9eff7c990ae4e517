"""One process of a row: compiles through ``lockcache.cuda``, hits, launches where there is a GPU, and compares.

A row's work is a function ``work(member, phase)`` at the top of its module. Every process of the row is spawned, so
that no CUDA context is inherited, and ends with its parent. What is wrong is counted and said, and ends nobody.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.gpu import Launcher
from lockcache_stress.processes import die_with_parent
from lockcache_stress.run import take_turn
from lockcache_stress.trouble import HERD_FAULTS, plant_bug

__all__ = ["Answer", "Member", "Task", "run_member"]

_MOST_FINDINGS: Final = 5


@dataclass(frozen=True)
class Task:
    """What all processes of a row do; small enough to be sent to them."""

    work: Callable[[Member, int], None]
    #: The cache under test.
    directory: str
    arch: str
    has_gpu: bool
    #: How long a phase that repeats itself goes on.
    seconds: float
    seed: int
    plant: str | None
    #: Keeps runs in one directory apart.
    token: str


@dataclass
class Answer:
    """What a process says at the end of a phase, of that phase alone."""

    #: ``compiles``, ``hits``, ``launches``, ``links``, ``wrong``.
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    #: Digests by name: the same in all processes.
    digests: dict[str, str] = field(default_factory=dict)
    #: Seconds of each repetition, by what was timed.
    times: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""


class Member:
    """What a row's work is given."""

    def __init__(self, task: Task, index: int) -> None:
        self.task, self.index = task, index
        self.cache = FileStreamProgramCache(task.directory)
        self.answer = Answer()
        #: What a phase leaves for the next.
        self.kept: list[Any] = []
        self._launcher = Launcher() if task.has_gpu else None
        self._program_type = _counting(self)

    def compile(self, source: str, options: Any, target: str = "cubin", names: Sequence[str] = ()) -> Any:
        """Returns the program as an ``ObjectCode``: a hit of the cache, or compiled for it."""
        before = self.answer.counts["compiles"]
        program = self._program_type(source, "c++", options)
        try:
            code = program.compile(target, name_expressions=tuple(names), cache=self.cache)
        finally:
            program.close()
        if self.answer.counts["compiles"] == before:
            self.answer.counts["hits"] += 1
        return code

    def load(self, code: Any, name: str = "run") -> Any:
        """Returns the kernel, loaded; ``None`` without a GPU."""
        return None if self._launcher is None else self._launcher.load(code, name)

    def launch(self, kernel: Any, expected: list[int], what: str) -> None:
        """Launches a loaded kernel and compares what it computes; nothing without a GPU."""
        if self._launcher is None:
            return
        self.answer.counts["launches"] += 1
        found = self._launcher.run(kernel)
        wrong = [i for i, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
        self.must(not wrong, f"{what}: the GPU computed other numbers, the first at {wrong[:1]}")

    def must(self, is_so: bool, otherwise: str) -> None:
        """Counts something wrong, unless it ``is_so``."""
        if is_so:
            return
        self.answer.counts["wrong"] += 1
        if len(self.answer.findings) < _MOST_FINDINGS:
            self.answer.findings.append(f"process {self.index}: {otherwise}")

    def until_time(self) -> Callable[[], bool]:
        """Returns a function that says whether the phase's time is not over."""
        deadline = time.monotonic() + self.task.seconds
        return lambda: time.monotonic() < deadline


def run_member(task: Task, index: int, parent: Connection, gates: list[Connection]) -> None:
    """A process from start to end: in each phase says ready, waits for the gate, works, answers."""
    die_with_parent()
    plant_bug(HERD_FAULTS.get(task.plant or ""))
    member = Member(task, index)
    for phase, gate in enumerate(gates):
        take_turn(parent, gate)
        member.answer = Answer()
        try:
            task.work(member, phase)
        except Exception:  # noqa: BLE001  reported to the parent, with what was counted until then
            member.answer.error = traceback.format_exc(limit=-6)
        parent.send(member.answer)


def _counting(member: Member) -> Any:
    """``lockcache.cuda.Program``, with a count of what NVRTC is asked for."""
    from lockcache.cuda import Program

    class CountingProgram(Program):
        def _compile_now(self, *given: Any) -> Any:
            member.answer.counts["compiles"] += 1
            return super()._compile_now(*given)

    return CountingProgram

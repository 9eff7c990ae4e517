# SPDX-License-Identifier: Apache-2.0
"""The processes of a row: the work of each, phase by phase, and the sum of their answers (:class:`Crowd`).

A process compiles through ``lockcache.cuda``, hits, launches where there is a GPU, and compares. A row's work is a
function ``work(member, phase)`` at the top of its module. Every process of the row is spawned, so that it inherits no
CUDA context, and ends with its parent. Wrong results are counted and reported, and end no process.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit, measured
from lockcache_stress.gpu import Launcher
from lockcache_stress.processes import Group, die_with_parent, take_turn
from lockcache_stress.run import Check, some
from lockcache_stress.trouble import HERD_FAULTS, Workspace, open_workspace, plant_bug

_MOST_FINDINGS: Final = 5
# Added to a row's time, for importing cuda.core in every process of a busy machine and for the last compilation.
_PATIENCE_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Task:
    """The work of all processes of a row; small enough to be sent to them."""

    work: Callable[[Member, int], None]
    #: The cache under test.
    directory: str
    arch: str
    has_gpu: bool
    #: The duration of a phase that repeats its work.
    seconds: float
    seed: int
    plant: str | None
    #: The text that distinguishes the keys of runs in one directory.
    token: str


@dataclass
class Answer:
    """The answer of a process at the end of a phase, about that phase alone."""

    #: The counts ``compiles``, ``hits``, ``launches``, ``links`` and ``wrong``.
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    #: Digests by name, which must be the same in all processes.
    digests: dict[str, str] = field(default_factory=dict)
    #: The seconds of each repetition, by the name of the timed operation.
    times: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""


class Member:
    """The tools of a row's work."""

    def __init__(self, task: Task, index: int) -> None:
        self.task, self.index = task, index
        self.cache = FileStreamProgramCache(task.directory)
        self.answer = Answer()
        #: Objects that a phase leaves for the next.
        self.kept: list[Any] = []
        self._launcher = Launcher() if task.has_gpu else None
        self._program_type = _counting(self)

    def compile(self, source: str, options: Any, target: str = "cubin", names: Sequence[str] = ()) -> Any:
        """Returns the program as an ``ObjectCode``: from the cache, or compiled and stored there."""
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
        """Launch a loaded kernel and compare what it computes; does nothing without a GPU."""
        if self._launcher is None:
            return
        self.answer.counts["launches"] += 1
        found = self._launcher.run(kernel)
        wrong = [i for i, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
        self.must(not wrong, f"{what}: the GPU computed other numbers, the first at {wrong[:1]}")

    def must(self, is_so: bool, otherwise: str) -> None:
        """Count and report ``otherwise``, unless it ``is_so``."""
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
    """Run a process from start to end: in each phase say ready, wait for the gate, work, answer."""
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
    """Returns ``lockcache.cuda.Program`` that counts the compilations by NVRTC."""
    from lockcache.cuda import Program

    class CountingProgram(Program):
        def _compile_now(self, *given: Any) -> Any:
            member.answer.counts["compiles"] += 1
            return super()._compile_now(*given)

    return CountingProgram


class Crowd:
    """The answers of the processes of a row."""

    def __init__(self, kit: Kit, processes: int) -> None:
        self.kit, self.processes = kit, processes
        #: The answers by phase.
        self.answers: list[list[Answer]] = []
        self.deaths: list[str] = []

    def count(self, name: str, phase: int | None = None) -> int:
        """Returns a sum over all processes, of one phase or of all."""
        return sum(answer.counts[name] for answer in self._answers(phase))

    def distinct(self) -> dict[str, int]:
        """Returns the number of different digests that processes found, by name. More than one is wrong."""
        found: dict[str, set[str]] = {}
        for answer in self._answers(None):
            for name, digest in answer.digests.items():
                found.setdefault(name, set()).add(digest)
        return {name: len(digests) for name, digests in found.items()}

    def times(self, name: str) -> list[float]:
        """Returns the seconds of every repetition."""
        return [each for answer in self._answers(None) for each in answer.times.get(name, ())]

    @property
    def wrong(self) -> int:
        """The number of wrong results."""
        return self.count("wrong") + sum(count - 1 for count in self.distinct().values())

    def found(self, name: str, did: str, lines: Iterable[Check], compiles: int, **numbers: Any) -> Found:
        """Returns the result of the row ``name``, with the numbers that are reported of every row."""
        totals: Counter[str] = sum((answer.counts for answer in self._answers(None)), Counter())
        errors = [answer.error for answer in self._answers(None) if answer.error]
        findings = [text for answer in self._answers(None) for text in answer.findings]
        options = self.kit.options
        launches = totals["launches"] if self.kit.gpu_arch else None
        outcome = measured(
            name,
            f"{name}: {self.processes} processes, seed {options.seed}",
            lines if launches is None else [*lines, some("launches", launches)],
            {"processes": self.processes, "seed": options.seed, **totals, **numbers},
            operations=totals["hits"] + totals["compiles"],
            hits=totals["hits"],
            wrong=self.wrong,
            deaths=self.deaths,
            findings=[{"error": text} for text in [*errors, *findings]],
        )
        return Found(did, outcome, compiles, launches, self.wrong, self.kit.notes)

    def _answers(self, phase: int | None) -> list[Answer]:
        phases = self.answers if phase is None else self.answers[phase : phase + 1]
        return [answer for answers in phases for answer in answers]


def run_crowd(
    kit: Kit,
    work: Callable[[Member, int], None],
    phases: int,
    *,
    processes: int | None = None,
    seconds: float | None = None,
    before: Callable[[int, Workspace], object] = lambda phase, space: None,
) -> Crowd:
    """Run ``work`` in every process, phase by phase, in a directory of its own.

    ``before`` is called before each phase, while all processes wait. ``seconds`` is the duration of a phase that
    repeats its work; by default all of the row's time.
    """
    options = kit.options
    crowd = Crowd(kit, processes or options.processes)
    with open_workspace(None) as space:
        task = Task(
            work=work,
            directory=space.cache,
            arch=kit.arch,
            has_gpu=kit.gpu_arch is not None,
            seconds=kit.seconds if seconds is None else seconds,
            seed=options.seed,
            plant=options.plant,
            token=os.path.basename(space.control),
        )
        with Group(run_member, (task,), crowd.processes, phases, task.seconds + _PATIENCE_SECONDS) as group:
            for phase in range(phases):
                crowd.answers.append(group.run_phase(phase, before=partial(before, phase, space)))
            crowd.deaths = group.deaths
    return crowd

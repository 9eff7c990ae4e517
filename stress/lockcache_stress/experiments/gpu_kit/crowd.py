"""Runs the processes of a row through its phases, and adds up what they answered."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.member import Answer, Member, Task, run_member
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit, measured
from lockcache_stress.run import Check, Group, some
from lockcache_stress.trouble import Workspace, open_workspace

__all__ = ["Crowd", "run_crowd"]

# On top of a row's time: importing cuda.core in every process of a busy machine, and the compilation in hand.
_PATIENCE_SECONDS: Final = 120.0


class Crowd:
    """What the processes of a row came to."""

    def __init__(self, kit: Kit, processes: int) -> None:
        self.kit, self.processes = kit, processes
        #: By phase.
        self.answers: list[list[Answer]] = []
        self.deaths: list[str] = []

    def count(self, name: str, phase: int | None = None) -> int:
        """Returns a sum over all processes, of one phase or of all."""
        return sum(answer.counts[name] for answer in self._answers(phase))

    def distinct(self, phase: int | None = None) -> dict[str, int]:
        """Returns, by name, how many different digests processes found. One is right."""
        found: dict[str, set[str]] = {}
        for answer in self._answers(phase):
            for name, digest in answer.digests.items():
                found.setdefault(name, set()).add(digest)
        return {name: len(digests) for name, digests in found.items()}

    def times(self, name: str) -> list[float]:
        """Returns every repetition's seconds."""
        return [each for answer in self._answers(None) for each in answer.times.get(name, ())]

    @property
    def wrong(self) -> int:
        """Everything that was not as it must be."""
        return self.count("wrong") + sum(count - 1 for count in self.distinct().values())

    def found(self, name: str, did: str, lines: Iterable[Check], compiles: int, **numbers: Any) -> Found:
        """Returns what the row ``name`` came to, with what is reported of every row."""
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
    """Runs ``work`` in every process, phase by phase, in a directory of its own.

    ``before`` is called in front of each phase, while all processes wait. ``seconds`` is what a phase that repeats
    itself takes; all of the row's time by default.
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
                group.gather()
                before(phase, space)
                group.open_gate(phase)
                crowd.answers.append(group.gather())
            crowd.deaths = group.deaths
    return crowd

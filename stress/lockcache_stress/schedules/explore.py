# SPDX-License-Identifier: Apache-2.0
"""The search: every order of an experiment's operations, up to calls that commute, with so many preemptions at most.

Each run is a list of choices; what else could have been done at each of its moments gives further lists. Two orders are
the same if one becomes the other by exchanging neighbouring calls of two processes that commute (:mod:`.calls`). Of
those one is run:

- A process is preempted only in front of a call that meets a call of another process in any run so far. What a run
  shows later is made up for: moments that were passed over are looked at again when nothing else is left.
- A process that was preempted goes on only after another one made a call that meets the one in front of which it
  stands: else it might as well have made that call before (sleep sets).

Neither needs more preemptions for an order than the one that is left out. Deaths are tried in front of every call that
changes something, whomever it meets.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from lockcache_stress.schedules.calls import Seen, accesses
from lockcache_stress.schedules.directory import Workplace
from lockcache_stress.schedules.judge import judge, look
from lockcache_stress.schedules.operations import OPERATIONS, Begin
from lockcache_stress.schedules.planted import PLANTED
from lockcache_stress.schedules.running import Decision, Ran, Rules, Runner, decode, encode
from lockcache_stress.schedules.traced import Traced

#: Violations of one experiment that are kept.
MOST_FOUND: Final = 20


@dataclass(frozen=True)
class Experiment:
    """Operations whose orders are run."""

    names: tuple[str, ...]
    most_preemptions: int = 2
    kills: bool = True
    #: The name of a fault that each process has.
    fault: str = ""
    #: Whether its runs are compared with the model.
    compares: bool = True

    @property
    def title(self) -> str:
        return "+".join(self.names)

    @property
    def begin(self) -> Begin:
        """The directory that suits all of its operations."""
        found = Begin()
        for name in self.names:
            found = found.with_(OPERATIONS[name].begin)
        return found


@dataclass(frozen=True)
class Violation:
    """A schedule that broke a promise."""

    #: Replays it: see :func:`.running.encode`.
    schedule: tuple[int, ...]
    wrong: tuple[str, ...]

    @property
    def key(self) -> tuple[int, int, tuple[int, ...]]:
        """The shortest comes first."""
        return len(self.schedule), sum(self.schedule), self.schedule


@dataclass
class Explored:
    """What was found in an experiment."""

    experiment: Experiment
    schedules: int = 0
    redundant: int = 0
    steps: int = 0
    kills: int = 0
    #: Runs that were compared with the model.
    compared: int = 0
    longest: int = 0
    seconds: float = 0.0
    #: The processor time of the explorer and of all processes that it ran.
    cpu_seconds: float = 0.0
    #: Whether every schedule was run: not if the time was up.
    is_whole: bool = False
    violations: list[Violation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "operations": list(self.experiment.names),
            "fault": self.experiment.fault,
            "preemptions": self.experiment.most_preemptions,
            "kills": self.experiment.kills,
            "schedules": self.schedules,
            "redundant": self.redundant,
            "deaths": self.kills,
            "compared": self.compared,
            "steps": self.steps,
            "longest": self.longest,
            "seconds": round(self.seconds, 3),
            "processor_seconds": round(self.cpu_seconds, 3),
            "whole": self.is_whole,
            "violations": [{"schedule": list(each.schedule), "wrong": list(each.wrong)} for each in self.violations],
        }


class Explorer:
    """Runs the schedules of one experiment in one directory."""

    def __init__(self, experiment: Experiment, root: str, after: Callable[[Ran], list[str]] = lambda ran: []) -> None:
        """``after``: a further judgement of each run."""
        self.experiment = experiment
        self._place = Workplace(root, experiment.begin)
        self._operations = [OPERATIONS[name] for name in experiment.names]
        self._after = after
        plant = PLANTED[experiment.fault].plant if experiment.fault else None
        acts = [self._place.act_of(operation, number, plant) for number, operation in enumerate(self._operations)]
        is_capped = experiment.begin.is_capped
        self._runner = Runner(
            Rules(
                root,
                acts,
                experiment.most_preemptions,
                experiment.kills,
                partial(accesses, counts_room=is_capped),
                partial(look, self._place),
            )
        )
        self._seen = Seen()
        self._traced = Traced(self._place, experiment.names)

    @property
    def compared(self) -> int:
        """How many runs were compared with the model."""
        return self._traced.compared

    def run(self, choices: Sequence[int], *, cuts: bool = False) -> tuple[Ran, list[str]]:
        """Run one schedule, and judge it. ``cuts``: only as far as no other run had its order."""
        self._place.reset()
        ran = self._runner.run(choices, cuts=cuts)
        if ran.is_cut:
            return ran, ran.wrong
        for process in ran.processes:
            for event in process.events:
                event["number"] = process.number
        wrong = judge(self._place, ran, self.experiment.names)
        if not wrong and self.experiment.compares:
            wrong = self._traced.judge(ran)
        return ran, wrong or self._after(ran)

    def replay(self, schedule: Sequence[int]) -> tuple[Ran, list[str]]:
        """Run the schedule that these integers name."""
        return self.run(decode(schedule, len(self._operations)))

    def explore(
        self,
        until: float,
        show: Callable[[Explored, int], None] = lambda found, left: None,
        *,
        stop_at: int = MOST_FOUND,
    ) -> Explored:
        """Run all schedules, or those that can be run ``until`` then (monotonic seconds).

        Those with fewer preemptions come first. ``stop_at``: so many violations are enough.
        """
        found, began, spent = Explored(self.experiment), time.monotonic(), _cpu_seconds()
        levels: list[deque[bytes]] = [deque() for _ in range(self.experiment.most_preemptions + 1)]
        levels[0].append(b"")
        passed_over: list[tuple[bytes, Decision]] = []
        version = 0
        while time.monotonic() < until and len(found.violations) < stop_at:
            level = next((each for each in levels if each), None)
            if level is None:
                if version == self._seen.version:
                    found.is_whole = True
                    break
                version = self._seen.version
                passed_over = self._look_again(passed_over, levels)
                continue
            prefix = level.popleft()
            ran, wrong = self.run(prefix, cuts=True)
            self._count(found, prefix, ran, wrong)
            found.compared = self.compared
            for process, _, used in ran.calls:
                self._seen.add(process, used)
            if wrong:
                continue
            choices = bytes(ran.choices)
            for decision in self._new_decisions(ran, len(prefix)):
                if self._is_of_interest(decision):
                    levels[decision.preemptions].append(_with(choices, decision))
                else:
                    passed_over.append((choices, decision))
            show(found, sum(map(len, levels)))
        found.seconds, found.cpu_seconds = time.monotonic() - began, _cpu_seconds() - spent
        found.violations.sort(key=lambda each: each.key)
        return found

    def _new_decisions(self, ran: Ran, begin: int) -> list[Decision]:
        """Returns the decisions behind the prefix, which gave its own already."""
        return [each for each in ran.decisions if each.at >= begin and each.at < ran.redundant_from]

    def _is_of_interest(self, decision: Decision) -> bool:
        return decision.used is None or self._seen.meets_other(decision.process, decision.used)

    def _look_again(
        self, passed_over: list[tuple[bytes, Decision]], levels: Sequence[deque[bytes]]
    ) -> list[tuple[bytes, Decision]]:
        left = []
        for choices, decision in passed_over:
            if self._is_of_interest(decision):
                levels[decision.preemptions].append(_with(choices, decision))
            else:
                left.append((choices, decision))
        return left

    def _count(self, found: Explored, prefix: bytes, ran: Ran, wrong: list[str]) -> None:
        found.schedules += 1
        found.redundant += ran.is_redundant
        found.steps += len(ran.calls)
        found.longest = max(found.longest, len(ran.calls))
        found.kills += any(process.is_dead for process in ran.processes)
        if wrong:
            found.violations.append(Violation(tuple(encode(prefix, len(self._operations))), tuple(wrong)))


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def _with(choices: bytes, decision: Decision) -> bytes:
    """Returns the choices up to a decision, and the other choice."""
    return choices[: decision.at] + bytes([decision.choice])

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
from typing import Any, Final, TypeAlias

from lockcache_stress.schedules.calls import Access, Seen, accesses
from lockcache_stress.schedules.directory import Workplace
from lockcache_stress.schedules.judge import image_of, judge, look
from lockcache_stress.schedules.operations import OPERATIONS, Begin
from lockcache_stress.schedules.planted import PLANTED
from lockcache_stress.schedules.rows import Row, rows_of
from lockcache_stress.schedules.running import NEVER, Decision, Ran, Rules, Runner, decode, encode
from lockcache_stress.schedules.states import Known, states_of
from lockcache_stress.schedules.traced import Traced
from lockcache_stress.schedules.worker import Task

#: A process, its call, and what that uses.
MadeCall: TypeAlias = "tuple[int, object, tuple[Access, ...]]"
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
    #: Whether of orders that come to the same only one is run: else all are, to compare.
    reduces: bool = True

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
    #: Runs that came to a state from which another one had gone on.
    known: int = 0
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
        image = partial(image_of, self._place)
        tasks = [
            # With a fault, a process may end with locks or descriptors that it should have given back.
            Task(
                number,
                self._place.act_of(operation, number, plant),
                image,
                stays=plant is None and not operation.alters,
            )
            for number, operation in enumerate(self._operations)
        ]
        self._runner = Runner(
            Rules(
                root,
                tasks,
                experiment.most_preemptions,
                experiment.kills,
                partial(accesses, counts_room=experiment.begin.is_capped),
                image,
                partial(look, self._place),
            )
        )
        self._seen, self._known = Seen(), Known()
        self._passed_over: list[tuple[Ran, Decision]] = []
        self._place.reset()
        self._image = image()[1]
        self._traced = Traced(self._place, experiment.names)

    @property
    def compared(self) -> int:
        """How many runs were compared with the model."""
        return self._traced.compared

    def run(self, choices: Sequence[int], *, cuts: bool = False) -> tuple[Ran, list[str]]:
        """Run one schedule, and judge it. ``cuts``: only as far as no other run had its order."""
        self._runner.tidy()
        self._place.reset()
        ran = self._runner.run(choices, cuts=cuts)
        if ran.is_cut:
            return ran, ran.wrong or self._compare(ran)
        for process in ran.processes:
            for event in process.events:
                event["number"] = process.number
        wrong = judge(self._place, ran, self.experiment.names)
        return ran, wrong or self._compare(ran) or self._after(ran)

    def _compare(self, ran: Ran) -> list[str]:
        return self._traced.judge(ran) if self.experiment.compares else []

    def close(self) -> None:
        """End the processes."""
        self._runner.close()

    def replay(self, schedule: Sequence[int]) -> tuple[Ran, list[str]]:
        """Run the schedule that these integers name."""
        try:
            return self.run(decode(schedule, len(self._operations)))
        finally:
            self.close()

    def explore(
        self,
        until: float,
        show: Callable[[Explored, int], None] = lambda found, left: None,
        *,
        stop_at: int = MOST_FOUND,
        counts: Callable[[Violation], bool] = lambda found: True,
    ) -> Explored:
        """Run all schedules, or those that can be run ``until`` then (monotonic seconds).

        Those with fewer preemptions come first. ``stop_at``: so many violations that ``counts`` are enough.
        """
        found, began, spent = Explored(self.experiment), time.monotonic(), _cpu_seconds()
        levels: list[deque[Row]] = [deque() for _ in range(self.experiment.most_preemptions + 1)]
        self._run_one(b"", found, levels)
        version = 0
        while time.monotonic() < until and sum(map(counts, found.violations)) < stop_at:
            level = next((each for each in levels if each), None)
            if level is None:
                if version == self._seen.version:
                    found.is_whole = True
                    break
                version = self._seen.version
                self._look_again(levels)
                continue
            following = level[0].next()
            if following is None:
                level.popleft()
                continue
            row, (prefix, decision) = level[0], following
            ran, is_right = self._run_one(prefix, found, levels, row.calls[: decision.at])
            row.note(decision, ran, is_right=is_right)
            show(found, sum(map(len, levels)))
        self.close()
        found.seconds, found.cpu_seconds = time.monotonic() - began, _cpu_seconds() - spent
        found.violations.sort(key=lambda each: (not counts(each), each.key))
        return found

    def _run_one(
        self,
        prefix: bytes,
        found: Explored,
        levels: Sequence[deque[Row]],
        known: Sequence[MadeCall] = (),
    ) -> tuple[Ran, bool]:
        """Run one schedule, and keep what else could have been done behind its prefix.

        ``known``: the calls of the run that it leaves at the end of its prefix.
        """
        ran, wrong = self.run(prefix, cuts=self.experiment.reduces)
        wrong = wrong or _other_calls(ran, known)
        for process, _, used in ran.calls:
            self._seen.add(process, used)
        known_from = self._known_from(ran) if self.experiment.reduces else NEVER
        self._count(found, prefix, ran, wrong, is_known=known_from < len(ran.choices))
        if wrong:
            return ran, False
        # At the step that would make it an order of another run, somebody else may go on, or die.
        end = min(ran.redundant_from + 1, known_from) if self.experiment.reduces else NEVER
        new = [each for each in ran.decisions if len(prefix) <= each.at < end]
        self._passed_over += [(ran, each) for each in new if not self._is_of_interest(each)]
        self._keep(ran, [each for each in new if self._is_of_interest(each)], levels)
        return ran, True

    def _keep(self, ran: Ran, decisions: Sequence[Decision], levels: Sequence[deque[Row]]) -> None:
        most = self.experiment.most_preemptions if self.experiment.reduces else NEVER
        for row in rows_of(ran, decisions, most):
            levels[row.preemptions].append(row)

    def _known_from(self, ran: Ran) -> int:
        """Returns the first step behind the prefix in front of which is a state from which another run went on."""
        has_order, count = self.experiment.begin.is_capped, len(self._operations)
        begin = min(ran.moments, default=len(ran.made))
        for at, state in states_of(ran.made, count, self._image, begin, has_order=has_order):
            if at == ran.redundant_from or at not in ran.moments:
                break
            traced = ran.model_states[at - 1] if 0 < at <= len(ran.model_states) else 0
            if self._known.add(hash((state, traced)), ran.moments[at]):
                return at
        return NEVER

    def _is_of_interest(self, decision: Decision) -> bool:
        return (
            decision.used is None
            or not self.experiment.reduces
            or self._seen.meets_other(decision.process, decision.used)
        )

    def _look_again(self, levels: Sequence[deque[Row]]) -> None:
        """Keep what has become of interest since it was passed over."""
        passed_over, self._passed_over = self._passed_over, []
        for ran, decision in passed_over:
            if self._is_of_interest(decision):
                self._keep(ran, [decision], levels)
            else:
                self._passed_over.append((ran, decision))

    def _count(self, found: Explored, prefix: bytes, ran: Ran, wrong: list[str], *, is_known: bool) -> None:
        found.schedules, found.compared = found.schedules + 1, self.compared
        found.known += is_known
        found.redundant += ran.is_redundant
        found.steps += len(ran.calls)
        found.longest = max(found.longest, len(ran.calls))
        found.kills += any(process.is_dead for process in ran.processes)
        if wrong:
            found.violations.append(Violation(tuple(encode(prefix, len(self._operations))), tuple(wrong)))


def _other_calls(ran: Ran, known: Sequence[MadeCall]) -> list[str]:
    """Returns the first call that is not as in the run before: what a process does would hang on earlier runs."""
    for at, (one, other) in enumerate(zip(known, ran.calls, strict=False)):
        if one != other:
            return [f"not repeatable: step {at} was {one[1]} of process {one[0]}, and is {other[1]} of {other[0]}"]
    return []


def _cpu_seconds() -> float:
    return sum(os.times()[:4])

# SPDX-License-Identifier: Apache-2.0
"""One schedule: forked processes, of which one at a time makes one step, in the order of a list of choices.

A choice is the number of the process that makes the next step; that number plus the count of processes is its SIGKILL.
Where the list ends, the run goes on without preemptions: the process that made the last step makes the next one, until
it ends or cannot go on.

A process that was refused a lock and sleeps for it can go on once a call of another process may have freed that lock.
One that sleeps for another reason can go on at any time, and the explorer's clock is then at least at the end of its
sleep. Where nobody else can go on, the one whose sleep ends first does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lockcache_stress.schedules.calls import Access, Call, conflict, read_call
from lockcache_stress.schedules.process import Process, Worker, start
from lockcache_stress.schedules.states import Made, Moment
from lockcache_stress.schedules.worker import ALL_STEPS, Task

#: Behind the last step of any run.
NEVER: Final = 1 << 40
#: More steps than any schedule takes that ends.
MOST_STEPS: Final = 6000
#: A death takes the place of so many preemptions: it ends all that the process would still have done.
DEATH_COSTS: Final = 2
#: Who sleeps for so long does something else.
IDLE_SECONDS: Final = 10.0
#: Of shorter sleeps, such as those for a lock, nobody notices that they moved the clock.
_NOTICED_SECONDS: Final = 0.1


class Decision(NamedTuple):
    """A moment at which another process could have gone on, or been killed."""

    at: int
    #: Of what has to meet another process's call for this to be of interest; ``None`` if it always is.
    used: tuple[Access, ...] | None
    process: int
    choice: int
    preemptions: int


class Looked(NamedTuple):
    """The directory behind a call that changed something in it."""

    #: What is wrong; empty if nothing is.
    wrong: str
    #: The lengths of entries, records and staged files, by their paths below the root.
    files: dict[str, int]
    #: The state page.
    image: bytes


@dataclass
class Ran:
    """What a run was."""

    choices: list[int] = field(default_factory=list)
    calls: list[tuple[int, Call | None, tuple[Access, ...]]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    #: By step: whether a call "failed", or a lock was "refused"; and the directory behind it.
    outcomes: dict[int, str] = field(default_factory=dict)
    looked: dict[int, Looked] = field(default_factory=dict)
    #: By step, what goes into a state; and where everybody stood in front of each step behind the choices given.
    made: list[Made] = field(default_factory=list)
    said: dict[int, list[object]] = field(default_factory=dict)
    moments: dict[int, Moment] = field(default_factory=dict)
    #: The step from which on it is an order of another run, with calls that commute in another order.
    redundant_from: int = NEVER
    #: By name of a key, the name of the value that is there at the end.
    last: dict[str, str] = field(default_factory=dict)
    #: By step, the states of the model behind it.
    model_states: list[int] = field(default_factory=list)
    #: Whether it was ended there.
    is_cut: bool = False
    preemptions: int = 0

    @property
    def is_redundant(self) -> bool:
        return self.redundant_from < len(self.choices)


@dataclass(frozen=True)
class Rules:
    """What a run may do, and what is looked at after each step."""

    #: The root of the cache.
    root: str
    #: By process.
    tasks: Sequence[Task]
    most_preemptions: int
    kills: bool
    #: Returns what a call uses.
    accesses: Callable[[Call], tuple[Access, ...]]
    #: Returns what there is on disk, and what is wrong with that.
    image: Callable[[], Any]
    look: Callable[[Sequence[Process], Any], Looked]


class Runner:
    """Runs schedules of one experiment. The directory is as the experiment prepared it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._workers: list[Worker | None] = [None for _ in rules.tasks]
        # Each call is made in hundreds of runs.
        self._calls: dict[tuple[Any, ...], tuple[Call, tuple[Access, ...]]] = {}

    def tidy(self) -> None:
        """Have the processes of the last run close what they have open: before the directory is put back."""
        for number, worker in enumerate(self._workers):
            if worker is not None and not worker.tidy():
                self._drop(number)

    def run(self, choices: Sequence[int], *, cuts: bool = False) -> Ran:
        """Run one schedule to its end. ``cuts``: only until it is an order of another run."""
        ran = Ran()
        try:
            for number, task in enumerate(self._rules.tasks):
                ran.processes.append(Process(self._begin(number, task)))
            pids = {process.pid: process.number for process in ran.processes}
            for process in ran.processes:
                self._hear(ran, process, 0.0, pids)
            self._go(ran, choices, pids, cuts)
        except BaseException:
            self.close()
            raise
        left = [process for process in ran.processes if not process.is_dead and process.catch_up()]
        for process in left:
            process.worker.abandon()
        for process in left:
            process.worker.wait_for_end()
        for number, task in enumerate(self._rules.tasks):
            if not task.stays or ran.processes[number].error:
                self._drop(number)
        return ran

    def close(self) -> None:
        """End all processes."""
        for number in range(len(self._workers)):
            self._drop(number)

    def _begin(self, number: int, task: Task) -> Worker:
        worker = self._workers[number]
        if worker is None:
            worker = self._workers[number] = start(task, [each for each in self._workers if each is not None])
        else:
            worker.prepare()
        return worker

    def _drop(self, number: int) -> None:
        worker, self._workers[number] = self._workers[number], None
        if worker is not None:
            worker.kill()

    def _go(self, ran: Ran, choices: Sequence[int], pids: dict[int, int], cuts: bool) -> None:
        processes = ran.processes
        clock, current, killed = 0.0, -1, False
        while any(not process.is_over for process in processes):
            at = len(ran.choices)
            if at >= MOST_STEPS:
                ran.wrong.append(f"a process does not end within {MOST_STEPS} steps")
                return
            default = self._default(processes, current)
            if at >= len(choices):
                ran.moments[at] = _moment(ran, current, killed, clock)
            self._decide(ran, at, default, current, killed)
            choice = choices[at] if at < len(choices) else default
            number = choice % len(processes)
            process = processes[number]
            if process.is_over:
                ran.wrong.append(f"this schedule does not fit: process {number} has ended before step {at}")
                return
            ran.preemptions += self._cost(processes, choice, default, current)
            ran.choices.append(choice)
            if choice >= len(processes):
                killed = True
                self._kill(ran, process)
                continue
            if choice != current >= 0 and processes[current].can_go_on and not processes[current].is_asleep:
                processes[current].is_redundant = True  # until somebody meets its call
            if process.is_redundant:
                ran.redundant_from = min(ran.redundant_from, at)
                if cuts:
                    ran.is_cut = True
                    return
            process.is_redundant, current = False, number
            clock = self._step(ran, process, clock, pids, choices)

    def _default(self, processes: Sequence[Process], current: int) -> int:
        """Returns the process that goes on without a preemption."""
        if current >= 0 and processes[current].can_go_on and not processes[current].is_asleep:
            return current
        ready = [each for each in processes if each.can_go_on and not each.is_asleep]
        if ready:
            return ready[0].number
        asleep = [each for each in processes if not each.is_over]
        return min(asleep, key=lambda each: (bool(each.awaits), each.until, each.number)).number

    def _cost(self, processes: Sequence[Process], choice: int, default: int, current: int) -> int:
        """Returns 1 for a preemption. To choose among others where the current process cannot go on is free."""
        if choice >= len(processes):
            return DEATH_COSTS
        if current < 0:
            return 0  # the first step
        is_free = not processes[current].can_go_on or processes[current].is_asleep
        if is_free and processes[choice].can_go_on and not processes[choice].is_asleep:
            return 0
        return int(choice != default)

    def _decide(self, ran: Ran, at: int, default: int, current: int, killed: bool) -> None:
        """Note what else could be done here."""
        rules, processes, count = self._rules, ran.processes, len(ran.processes)
        mine = processes[default]
        for other in processes:
            if other.number == default or not other.can_go_on or other.is_redundant or other.is_idle:
                continue
            cost = self._cost(processes, other.number, default, current)
            if ran.preemptions + cost <= rules.most_preemptions:
                used = mine.used if cost and mine.pending is not None and not other.moves_clock else None
                ran.decisions.append(Decision(at, used, default, other.number, ran.preemptions + cost))
        with_death = ran.preemptions + DEATH_COSTS
        if rules.kills and not killed and with_death <= rules.most_preemptions:
            for each in processes:
                if each.is_over or each.pending is None or not each.pending.changes:
                    continue
                # Another one than that whose turn it is dies only where somebody waits: else it might as well have
                # died before it was preempted.
                if each is mine or (mine.is_asleep and not each.is_asleep):
                    ran.decisions.append(Decision(at, None, each.number, count + each.number, with_death))

    def _step(self, ran: Ran, process: Process, clock: float, pids: dict[int, int], choices: Sequence[int]) -> float:
        call, used, others, step = process.pending, process.used, ran.processes, len(ran.calls)
        moves_clock = process.moves_clock
        if process.is_asleep:
            clock = max(clock, process.until)
        ran.calls.append((process.number, call, used))
        begins, ended, written = process.note_step(step), tuple(each.ended for each in others), process.written
        if not process.ahead:
            process.ahead = _steps_ahead(choices, len(ran.choices) - 1)
            process.worker.say(clock, step, process.ahead)
        process.ahead -= 1
        ran.said[step] = said = [written]
        self._hear(ran, process, clock, pids)
        looked = ran.looked.get(step)
        image = None if looked is None else looked.image
        ran.made.append(Made(process.number, call, False, clock, tuple(said), image, ended, begins))
        for other in others:
            if other is process:
                continue
            if call is not None and other.awaits and call.frees(other.awaits):
                other.awaits = ""
            if other.is_redundant and (moves_clock or conflict(other.used, used)):
                other.is_redundant = False
        if process.is_over:
            self._release(others)
        return clock

    def _look(self, ran: Ran, image: Any, call: object) -> None:
        ran.looked[len(ran.calls) - 1] = looked = self._rules.look(ran.processes, image)
        if looked.wrong and not ran.wrong:
            ran.wrong.append(f"after step {len(ran.calls) - 1}, {call}: {looked.wrong}")

    def _kill(self, ran: Ran, process: Process) -> None:
        self._drop(process.number)
        process.is_over = process.is_dead = True
        process.events = process.events_of_dead(len(ran.calls))
        ran.calls.append((process.number, None, ()))
        self._release(ran.processes)
        self._look(ran, self._rules.image(), "a SIGKILL")
        ended = tuple(each.ended for each in ran.processes)
        image = ran.looked[len(ran.calls) - 1].image
        ran.made.append(Made(process.number, None, True, 0.0, (), image, ended, False))

    def _release(self, processes: Sequence[Process]) -> None:
        """Let all go on who wait for a lock: a process has ended, and its locks fell. A death meets every call."""
        for each in processes:
            each.awaits, each.is_redundant = "", False

    def _hear(self, ran: Ran, process: Process, clock: float, pids: dict[int, int]) -> None:
        """Read what a process does next, and what its last call left."""
        last = process.pending
        process.pending, process.used, process.awaits = None, (), ""
        process.is_asleep = process.is_idle = process.moves_clock = False
        while True:
            said = process.worker.next()
            kind = said[0]
            if kind == "event":
                process.note_begun(*said[1:])
            elif kind == "ended":
                process.ended += 1
            elif kind == "outcome":
                ran.outcomes[len(ran.calls) - 1] = said[1]
                ran.said[len(ran.calls) - 1].append(said[1])
            elif kind == "polled":
                ran.said.setdefault(len(ran.calls) - 1, []).append(said[1])
            elif kind == "look":
                self._look(ran, said[1], last)
            elif kind == "call":
                process.pending, process.used = self._read(said[:-1], pids)
                process.written = said[-1]
                return
            elif kind == "sleep":
                process.is_asleep, process.until, process.ahead = True, clock + said[1], 0
                process.moves_clock = said[1] >= _NOTICED_SECONDS
                process.is_idle = said[1] >= IDLE_SECONDS
                process.awaits = said[2].removeprefix(f"{self._rules.root}/")
                return
            else:
                process.is_over, process.events, process.error = True, said[1], said[2]
                return

    def _read(self, said: tuple[Any, ...], pids: dict[int, int]) -> tuple[Call, tuple[Access, ...]]:
        found = self._calls.get(said)
        if found is None:
            call = read_call(said, self._rules.root, pids)
            found = self._calls[said] = call, self._rules.accesses(call)
        return found


def _moment(ran: Ran, current: int, has_killed: bool, clock: float) -> Moment:
    stands = tuple(
        (each.is_redundant, each.is_asleep, each.is_idle, each.is_over, each.until, each.awaits)
        for each in ran.processes
    )
    return Moment(ran.preemptions, current, has_killed, clock, stands)


def _steps_ahead(choices: Sequence[int], at: int) -> int:
    """Returns how many steps a process makes that is chosen here: to the next choice of another one."""
    number, count = choices[at] if at < len(choices) else -1, 0
    while at + count < len(choices):
        if choices[at + count] != number:
            return count
        count += 1
    return ALL_STEPS


def encode(choices: Sequence[int], processes: int) -> list[int]:
    """Returns a list of choices as integers that replay them: a process, its steps, the next process, its steps, ...

    A SIGKILL is one integer, without steps. What the run does by itself at the end is left out by the caller.
    """
    found: list[int] = []
    at = 0
    while at < len(choices):
        choice, begin = choices[at], at
        while at < len(choices) and choices[at] == choice and (choice < processes or at == begin):
            at += 1
        found += [choice] if choice >= processes else [choice, at - begin]
    return found


def decode(integers: Sequence[int], processes: int) -> list[int]:
    """Returns the choices of such integers. The steps of the last process may be missing: then it makes one."""
    choices: list[int] = []
    left = list(integers)
    while left:
        choice = left.pop(0)
        if choice < 0 or choice >= 2 * processes:
            raise ValueError(f"{choice} is neither one of {processes} processes nor the SIGKILL of one")
        if choice >= processes:
            choices.append(choice)
        else:
            choices += [choice] * (left.pop(0) if left else 1)
    return choices

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

import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lockcache_stress.schedules.calls import Access, Call, conflict, parse_call
from lockcache_stress.schedules.worker import WORD, Stepper, run_process

#: More steps than any schedule takes that ends.
MOST_STEPS: Final = 6000
#: A death takes the place of so many preemptions: it ends all that the process would still have done.
DEATH_COSTS: Final = 2
#: Who sleeps for so long does something else.
IDLE_SECONDS: Final = 10.0
_ENDING: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass
class Process:
    """One process of a run, as the controller sees it."""

    number: int
    pid: int
    receiver: int
    sender: int
    #: What it does next: a call, or nothing if it sleeps or has ended.
    pending: Call | None = None
    used: tuple[Access, ...] = ()
    is_asleep: bool = False
    #: The end of its sleep, by the explorer's clock.
    until: float = 0.0
    #: The lock for which it sleeps; empty once that may be free.
    awaits: str = ""
    #: Whether it sleeps for so long that nobody waits for it: then it goes on when nobody else can.
    is_idle: bool = False
    is_over: bool = False
    is_dead: bool = False
    #: Whether it was preempted in front of a call that nobody met since: to let it go on now is an order that was run.
    is_redundant: bool = False
    error: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _begun: list[dict[str, Any]] = field(default_factory=list)
    _rest: bytes = b""

    @property
    def can_go_on(self) -> bool:
        """Whether it has a step to make that does not wait for a lock."""
        return not self.is_over and not self.awaits

    def line(self) -> list[str]:
        """Returns its next message."""
        while b"\n" not in self._rest:
            more = os.read(self.receiver, 65536)
            if not more:
                raise RuntimeError(f"process {self.number} ended without a word")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode().split("\0", 1)

    def note_begun(self, text: str) -> None:
        """Note an operation that it began."""
        kind, key, value = json.loads(text)
        self._begun.append({"kind": kind, "key": key, "value": value, "start": None, "end": None})

    def note_step(self, step: int) -> None:
        """Note the first step of what it began."""
        for event in self._begun:
            if event["start"] is None:
                event["start"] = step

    def events_of_dead(self, step: int) -> list[dict[str, Any]]:
        """Returns what it began and may have done before ``step``."""
        return [{**event, "died": step} for event in self._begun if event["start"] is not None]


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
    #: The step from which on it is an order of another run, with calls that commute in another order.
    redundant_from: int = 1 << 40
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
    #: Returns the operation of each process, prepared in that process.
    acts: Sequence[Callable[[Stepper], Callable[[], None]]]
    most_preemptions: int
    kills: bool
    #: Returns what a call uses.
    accesses: Callable[[Call], tuple[Access, ...]]
    #: Called after each call that changes the disk.
    look: Callable[[Sequence[Process]], Looked]


class Runner:
    """Runs schedules of one experiment. The directory is as the experiment prepared it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def run(self, choices: Sequence[int], *, cuts: bool = False) -> Ran:
        """Run one schedule to its end. ``cuts``: only until it is an order of another run."""
        ran = Ran()
        try:
            for number, act in enumerate(self._rules.acts):
                ran.processes.append(_start(act, number, ran.processes))
            pids = {process.pid: process.number for process in ran.processes}
            for process in ran.processes:
                self._hear(ran, process, 0.0, pids)
            self._go(ran, choices, pids, cuts)
        finally:
            for process in ran.processes:
                _end(process)
        return ran

    def _go(self, ran: Ran, choices: Sequence[int], pids: dict[int, int], cuts: bool) -> None:
        processes = ran.processes
        clock, current, killed = 0.0, -1, False
        while any(not process.is_over for process in processes):
            at = len(ran.choices)
            if at >= MOST_STEPS:
                ran.wrong.append(f"a process does not end within {MOST_STEPS} steps")
                return
            default = self._default(processes, current)
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
                self._kill(ran, process, at)
                continue
            if choice != current >= 0 and processes[current].can_go_on and not processes[current].is_asleep:
                processes[current].is_redundant = True  # until somebody meets its call
            if process.is_redundant:
                ran.redundant_from = min(ran.redundant_from, at)
                if cuts:
                    ran.is_cut = True
                    return
            process.is_redundant, current = False, number
            clock = self._step(ran, process, clock, pids)

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
                used = mine.used if cost and mine.pending is not None else None
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

    def _step(self, ran: Ran, process: Process, clock: float, pids: dict[int, int]) -> float:
        call, used, others = process.pending, process.used, ran.processes
        if process.is_asleep:
            clock = max(clock, process.until)
        ran.calls.append((process.number, call, used))
        process.note_step(len(ran.calls) - 1)
        os.write(process.sender, WORD.pack(clock, len(ran.calls) - 1))
        self._hear(ran, process, clock, pids)
        for other in others:
            if other is process:
                continue
            if call is not None and other.awaits and call.frees(other.awaits):
                other.awaits = ""
            if other.is_redundant and conflict(other.used, used):
                other.is_redundant = False
        if process.is_over:
            self._release(others)
        if call is not None and call.fills:
            self._look(ran, call)
        return clock

    def _look(self, ran: Ran, call: object) -> None:
        ran.looked[len(ran.calls) - 1] = looked = self._rules.look(ran.processes)
        if looked.wrong and not ran.wrong:
            ran.wrong.append(f"after step {len(ran.calls) - 1}, {call}: {looked.wrong}")

    def _kill(self, ran: Ran, process: Process, at: int) -> None:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        process.is_over = process.is_dead = True
        process.events = process.events_of_dead(len(ran.calls))
        ran.calls.append((process.number, None, ()))
        self._release(ran.processes)
        self._look(ran, "a SIGKILL")

    def _release(self, processes: Sequence[Process]) -> None:
        """Let all go on who wait for a lock: a process has ended, and its locks fell. A death meets every call."""
        for each in processes:
            each.awaits, each.is_redundant = "", False

    def _hear(self, ran: Ran, process: Process, clock: float, pids: dict[int, int]) -> None:
        """Read what a process does next."""
        process.pending, process.used, process.awaits = None, (), ""
        process.is_asleep = process.is_idle = False
        while True:
            kind, text = process.line()
            if kind == "event":
                process.note_begun(text)
            elif kind == "outcome":
                ran.outcomes[len(ran.calls) - 1] = text
            elif kind == "call":
                process.pending = call = parse_call(text, self._rules.root, pids)
                process.used = self._rules.accesses(call)
                return
            elif kind == "sleep":
                seconds, _, path = text.partition("\0")
                process.is_asleep, process.until = True, clock + float(seconds)
                process.is_idle = float(seconds) >= IDLE_SECONDS
                process.awaits = path.removeprefix(f"{self._rules.root}/")
                return
            else:
                said = json.loads(text)
                process.is_over, process.events, process.error = True, said["events"], said["error"]
                os.waitpid(process.pid, 0)
                return


def _start(act: Callable[[Stepper], Callable[[], None]], number: int, others: Sequence[Process]) -> Process:
    receiver, its_sender = os.pipe()
    its_receiver, sender = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        pid = os.fork()
        if not pid:
            for fd in (receiver, sender, *(fd for each in others for fd in (each.receiver, each.sender))):
                os.close(fd)
            run_process(act, number, its_sender, its_receiver)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(its_sender)
    os.close(its_receiver)
    return Process(number, pid, receiver, sender)


def _end(process: Process) -> None:
    if not process.is_over:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
    os.close(process.receiver)
    os.close(process.sender)


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

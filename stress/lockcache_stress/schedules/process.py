# SPDX-License-Identifier: Apache-2.0
"""A process of a schedule, as the controller sees it: what it does next, and what it did.

It is used again for the next schedule if it ended well: a fork costs more than all the calls of an operation.
"""

from __future__ import annotations

import marshal
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache_stress.schedules.calls import Access, Call
from lockcache_stress.schedules.worker import ABANDON, AGAIN, LENGTH, WORD, Task, run_process

_ENDING: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass
class Worker:
    """A forked process, for as many schedules as it ends well."""

    number: int
    pid: int
    receiver: int
    sender: int
    messages: deque[tuple[Any, ...]] = field(default_factory=deque)

    def next(self) -> tuple[Any, ...]:
        """Returns its next message."""
        while not self.messages:
            self.messages.extend(marshal.loads(self._read(LENGTH.unpack(self._read(LENGTH.size))[0])))
        return self.messages.popleft()

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = os.read(self.receiver, size - len(found))
            if not more:
                raise RuntimeError(f"process {self.number} ended without a word")
            found += more
        return found

    def say(self, clock: float, step: int, steps: int) -> None:
        """Let it make so many steps, the first of which has this number."""
        os.write(self.sender, WORD.pack(clock, step, steps))

    def tidy(self) -> bool:
        """Have it close what it had open. Returns whether it can be used again."""
        self.say(0.0, -1, AGAIN)
        return self.next() == ("closed", True)

    def prepare(self) -> None:
        """Have it begin its operation once more."""
        self.say(0.0, -1, AGAIN)

    def abandon(self) -> None:
        """Have it leave its operation."""
        self.say(0.0, -1, ABANDON)

    def wait_for_end(self) -> None:
        """Read until it has left its operation."""
        while self.next()[0] != "end":
            pass

    def kill(self) -> None:
        """End it, and wait until it has ended."""
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.receiver)
        os.close(self.sender)


def start(task: Task, others: Sequence[Worker]) -> Worker:
    """Fork a process for the operation of this number. ``others``: whose pipes it must not keep."""
    receiver, its_sender = os.pipe()
    its_receiver, sender = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        pid = os.fork()
        if not pid:
            for fd in (receiver, sender, *(fd for each in others for fd in (each.receiver, each.sender))):
                os.close(fd)
            run_process(task, its_sender, its_receiver)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(its_sender)
    os.close(its_receiver)
    return Worker(task.number, pid, receiver, sender)


@dataclass
class Process:
    """One process of one run."""

    worker: Worker
    #: So many steps it makes by itself: they are read, and not waited for.
    ahead: int = 0
    #: What it does next: a call, or nothing if it sleeps or has ended.
    pending: Call | None = None
    used: tuple[Access, ...] = ()
    #: Stands for the bytes that its next call writes.
    written: object = 0
    is_asleep: bool = False
    #: The end of its sleep, by the explorer's clock.
    until: float = 0.0
    #: The lock for which it sleeps; empty once that may be free.
    awaits: str = ""
    #: Whether it sleeps for so long that deadlines of others may pass meanwhile: its waking meets every call.
    moves_clock: bool = False
    #: Whether it sleeps for so long that nobody waits for it: then it goes on when nobody else can.
    is_idle: bool = False
    is_over: bool = False
    is_dead: bool = False
    #: Whether it was preempted in front of a call that nobody met since: to let it go on now is an order that was run.
    is_redundant: bool = False
    error: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    #: How many of its events have ended.
    ended: int = 0
    _begun: list[dict[str, Any]] = field(default_factory=list)

    @property
    def number(self) -> int:
        return self.worker.number

    @property
    def pid(self) -> int:
        return self.worker.pid

    @property
    def can_go_on(self) -> bool:
        """Whether it has a step to make that does not wait for a lock."""
        return not self.is_over and not self.awaits

    def catch_up(self) -> bool:
        """Read what it did by itself. Returns whether it has not ended."""
        has_ended = self.is_over
        while self.ahead and not has_ended:
            kind = self.worker.next()[0]
            self.ahead = 0 if kind == "sleep" else self.ahead - (kind == "call")
            has_ended = kind == "end"
        return not has_ended

    def note_begun(self, kind: str, key: str, value: str) -> None:
        """Note an operation that it began."""
        self._begun.append({"kind": kind, "key": key, "value": value, "start": None, "end": None})

    def note_step(self, step: int) -> bool:
        """Note the first step of what it began. Returns whether it is the first of anything."""
        new = [event for event in self._begun if event["start"] is None]
        for event in new:
            event["start"] = step
        return bool(new)

    def events_of_dead(self, step: int) -> list[dict[str, Any]]:
        """Returns what it began and may have done before ``step``."""
        return [{**event, "died": step} for event in self._begun if event["start"] is not None]

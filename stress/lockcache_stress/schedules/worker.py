# SPDX-License-Identifier: Apache-2.0
"""A process of a schedule: a forked child that stops in front of each call and makes it when its turn comes.

It states its calls through a pipe and waits for a word of the controller, which has the explorer's clock, the number of
the step, and how many steps may be made before the next word. Time passes for it only by that clock: a sleep is a step
that ends when the controller says so. What is bound for the kernel is real: files, locks, FIFOs, deaths.

Between two runs it closes what it had open. It is used again if no descriptor is left, and no operation failed.
"""

from __future__ import annotations

import gc
import itertools
import marshal
import os
import posix
import random
import select
import struct
import time
import traceback
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

import lockcache.filestream.disk.owners
import lockcache.filestream.entry.reader
import lockcache.filestream.entry.removal
import lockcache.filestream.repair.abandoned
from lockcache_stress.experiments import files_of, replace_calls
from lockcache_stress.processes import die_with_parent
from lockcache_stress.schedules.calls import FILLS
from lockcache_stress.schedules.states import DELETED

# Looked up once by modules that a death never met: reads, and reaping.
_MORE: Final = [
    *(
        (lockcache.filestream.entry.reader, name)
        for name in ("_open", "_close", "_closerange", "_read_fd", "_getxattr", "_utime")
    ),
    (lockcache.filestream.entry.removal, "lock_descriptor"),
    (lockcache.filestream.repair.abandoned, "lock_descriptor"),
]
# Of the link of a descriptor, where its file has lost its name.
_NO_NAME: Final = " (deleted)"
_NAMES: Final = {"read_fd": "read", "closerange": "close"}
#: A word of the controller: the clock in seconds, the number of the next step, and how many steps may be made.
WORD: Final = struct.Struct("<dqq")
#: In the place of a count of steps: leave the operation; and go on with what comes next, between two operations.
ABANDON: Final = -1
AGAIN: Final = -2
#: As many steps as there are.
ALL_STEPS: Final = 1 << 62
#: In front of each message.
LENGTH: Final = struct.Struct("<I")
_ALL: Final = 1 << 62
# Descriptors in cycles of objects are closed by a collection, after so many runs.
_COLLECTED_AFTER: Final = 20
# What is left of an operation that was abandoned may ask for a lock, and gives up by its clock.
_SHORT_SECONDS: Final = 0.001
_exit: Final = posix._exit


class _AbandonedError(BaseException):
    """The controller has seen enough of this run."""


class Task(NamedTuple):
    """What a process is for."""

    number: int
    #: Prepares the operation, and returns it.
    act: Callable[[Stepper], Callable[[], None]]
    #: Returns what there is on disk, in plain values: called behind each call that changes which files there are.
    image: Callable[[], Any]
    #: Whether it is used again for the next run.
    stays: bool


class Stepper:
    """The way of one process through its calls."""

    def __init__(self, task: Task, sender: int, receiver: int) -> None:
        self._task, self._sender, self._receiver = task, sender, receiver
        self._write, self._read, self._lstat, self._readlink = os.write, os.read, os.lstat, os.readlink
        self._listdir, self._slept_really = os.listdir, time.sleep
        self._real = time.time
        self._is_stepping = False
        self.reset()

    def reset(self) -> None:
        """Forget the last run."""
        self._seconds = self._slept = 0.0
        self._refused, self._steps_left = "", 0
        # Messages that go with the next one for which the controller waits.
        self._untold: list[tuple[Any, ...]] = []
        #: The number of the last step that this process made.
        self.step = -1
        # Of operations that began and made no step yet.
        self._waiting: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        #: Called when the run is over, and not a part of it.
        self.closing: list[Callable[[], object]] = []

    def descriptors(self) -> int:
        """Returns how many this process has."""
        return len(self._listdir("/proc/self/fd"))

    def begin(self, kind: str, key: str, value: str = "") -> dict[str, Any]:
        """Note that an operation begins with the next step. Returns the note."""
        event = {"kind": kind, "key": key, "value": value, "start": None, "end": None, "seconds": -self._slept}
        self.events.append(event)
        self._waiting.append(event)
        self._untold.append(("event", kind, key, value))
        return event

    def end(self, event: dict[str, Any], value: str | None = None) -> None:
        """Note that it ended, and what it found."""
        event["end"] = self.step
        event["seconds"] += self._slept
        if event["start"] is None:
            event["start"] = self.step  # an operation without a step
            self._waiting.remove(event)
        if value is not None:
            event["value"] = value
        self._untold.append(("ended",))

    def arm(self) -> None:
        """Live by the explorer's clock, and stop in front of each call of an operation."""
        replace_calls(self._stopping, more=_MORE)
        base, base_ns, offset = 1000.0, 1000 * 10**9, self._real
        time.monotonic = lambda: base + self._seconds
        time.monotonic_ns = lambda: base_ns + int(self._seconds * 1e9)
        time.time = lambda: offset() + self._seconds
        time.sleep = self._sleep  # type: ignore[assignment]
        select.epoll = lambda: _Poll(self._sleep, self._rang, _epoll())  # type: ignore[misc, assignment]

    def _stopping(self, bound: str, call: Callable[..., Any]) -> Callable[..., Any]:
        name = _NAMES.get(bound, bound)

        fills = name in FILLS

        def stopped(*args: Any, **kwargs: Any) -> Any:
            if not self._is_stepping:
                return call(*args, **kwargs)
            files = self._files(name, args, kwargs)
            low, high = _range(name, args)
            makes = name == "open" and bool(args[1] & os.O_CREAT) and not self._is_there(files[0])
            written = self._written(name, args, files[0])
            self._untold.append(("call", name, low, high, makes, tuple(files), written))
            self._wait()
            self._refused = ""
            try:
                found = call(*args, **kwargs)
            except OSError:
                self._untold.append(("outcome", "failed"))
                raise
            finally:
                if fills and (makes or name != "open"):
                    self._look()
            if name == "lock_descriptor" and not found:
                self._refused = files[0]
                self._untold.append(("outcome", "refused"))
            return found

        return stopped

    def _look(self) -> None:
        self._is_stepping = False
        self._untold.append(("look", self._task.image()))
        self._is_stepping = True

    def _files(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        self._has_no_name = False
        try:
            return files_of(name, args, kwargs, self._link)
        except OSError:
            return [""]  # a number that nothing has

    def _link(self, path: str) -> str:
        found = self._readlink(path)
        self._has_no_name = self._has_no_name or found.endswith(_NO_NAME)
        return found

    def _written(self, name: str, args: tuple[Any, ...], path: str) -> str | int:
        """Returns what stands for the bytes that a call writes, where that can be compared with those of other runs."""
        if self._has_no_name and "/entries/" not in path:
            return DELETED
        if name not in ("write", "pwrite"):
            return self._task.number * (name == "setxattr")  # a record states the time
        if "/leases/" in path:  # a holder states its pid and time
            return (self._task.number << 32) + len(args[1])
        return zlib.crc32(args[1])

    def _is_there(self, path: str) -> bool:
        try:
            self._lstat(path)
        except OSError:
            return False
        return True

    def _sleep(self, seconds: float) -> None:
        if not self._is_stepping:
            self._slept_really(min(seconds, _SHORT_SECONDS))
            self._seconds += seconds
            return
        self._slept += seconds
        self._untold.append(("sleep", seconds, self._refused))
        self._steps_left = 0
        self._wait()

    def _rang(self, has_rung: bool) -> None:
        self._untold.append(("polled", has_rung))

    def tell(self, *message: Any) -> None:
        """Say this and all that was not said yet. Each time wakes the controller."""
        said = marshal.dumps([*self._untold, message] if message else self._untold)
        self._untold.clear()
        said = LENGTH.pack(len(said)) + said
        while said:
            said = said[self._write(self._sender, said) :]

    def hear(self) -> int:
        """Returns how many steps the controller lets this process make."""
        word = self._read(self._receiver, WORD.size)
        if not word:
            _exit(1)  # the controller is gone
        self._seconds, self.step, steps = WORD.unpack(word)
        return int(steps)

    def _wait(self) -> None:
        if self._steps_left:
            self.step += 1
        else:
            self.tell()
            self._steps_left = self.hear()
            if self._steps_left == ABANDON:
                self._is_stepping = False
                raise _AbandonedError
        self._steps_left -= 1
        while self._waiting:
            self._waiting.pop()["start"] = self.step

    def run(self) -> bool:
        """Run the operation, step by step. Returns whether it did not fail."""
        random.seed(self._task.number)
        vars(lockcache.filestream.disk.owners)["next_serial"] = itertools.count().__next__
        error = ""
        try:
            operation = self._task.act(self)
            self._is_stepping = True
            operation()
        except _AbandonedError:
            self._untold.clear()
        except Exception:  # noqa: BLE001 - it is the controller's
            error = traceback.format_exc()
        self._is_stepping = False
        self.tell("end", self.events, error)
        return not error


_epoll: Final = select.epoll


class _Poll:
    """An epoll whose wait is a sleep by the explorer's clock."""

    def __init__(self, sleep: Callable[[float], None], note: Callable[[bool], None], real: Any) -> None:
        self._sleep, self._note, self._real = sleep, note, real

    def register(self, *given: Any) -> None:
        """Register as the real one."""
        self._real.register(*given)

    def poll(self, seconds: float) -> Any:
        """Returns the events, which come at once or after one sleep."""
        found = self._real.poll(0)
        self._note(bool(found))
        if not found:
            self._sleep(seconds)
            found = self._real.poll(0)
            self._note(bool(found))
        return found


def _range(name: str, args: tuple[Any, ...]) -> tuple[int, int]:
    if name == "pread":
        return args[2], args[2] + args[1]
    if name == "pwrite":
        return args[2], args[2] + len(args[1])
    return 0, _ALL


def run_process(task: Task, sender: int, receiver: int) -> NoReturn:
    """Make the steps of an operation as the controller says, for as many runs as it says, and end this process."""
    code = 1
    try:
        die_with_parent()
        gc.disable()  # finalizers make calls, and would make them at any step
        stepper = Stepper(task, sender, receiver)
        stepper.arm()
        known, runs = stepper.descriptors(), 0
        while stepper.run() and task.stays:
            stepper.hear()
            while stepper.closing:
                stepper.closing.pop()()
            stepper.reset()
            runs += 1
            if not runs % _COLLECTED_AFTER:
                gc.collect()
            is_clean = stepper.descriptors() == known
            stepper.tell("closed", is_clean)
            if not is_clean:
                break
            stepper.hear()
        code = 0
    finally:
        _exit(code)

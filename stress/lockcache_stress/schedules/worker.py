# SPDX-License-Identifier: Apache-2.0
"""A process of a schedule: a forked child that stops in front of each call and makes it when its turn comes.

It states the call through a pipe and waits for a word of the controller, which has the explorer's clock and the
number of the step. Time passes for it only by that clock: a sleep is a step that ends when the controller says so. What
is bound for the kernel is real: files, locks, FIFOs, deaths.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import posix
import random
import select
import struct
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import lockcache.filestream.disk.owners
import lockcache.filestream.entry.reader
import lockcache.filestream.entry.removal
import lockcache.filestream.repair.abandoned
from lockcache_stress.experiments import files_of, replace_calls
from lockcache_stress.processes import die_with_parent

# Looked up once by modules that a death never met: reads, and reaping.
_MORE: Final = [
    *(
        (lockcache.filestream.entry.reader, name)
        for name in ("_open", "_close", "_closerange", "_read_fd", "_getxattr", "_utime")
    ),
    (lockcache.filestream.entry.removal, "lock_descriptor"),
    (lockcache.filestream.repair.abandoned, "lock_descriptor"),
]
_NAMES: Final = {"read_fd": "read", "closerange": "close"}
#: A word of the controller: the clock in seconds, and the number of the step.
WORD: Final = struct.Struct("<dq")
_ALL: Final = 1 << 62
_exit: Final = posix._exit


class Stepper:
    """The way of one process through its calls."""

    def __init__(self, sender: int, receiver: int) -> None:
        self._sender, self._receiver = sender, receiver
        self._write, self._read, self._lstat, self._readlink = os.write, os.read, os.lstat, os.readlink
        self._seconds = self._slept = 0.0
        self._real = time.time
        self._refused = ""
        # Messages that go with the next call: each wakes the controller.
        self._untold: list[str] = []
        #: The number of the last step that this process made.
        self.step = -1
        # Of operations that began and made no step yet.
        self._waiting: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def begin(self, kind: str, key: str, value: str = "") -> dict[str, Any]:
        """Note that an operation begins with the next step. Returns the note."""
        event = {"kind": kind, "key": key, "value": value, "start": None, "end": None, "seconds": -self._slept}
        self.events.append(event)
        self._waiting.append(event)
        self._note("event", json.dumps([event["kind"], key, value]))
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

    def arm(self) -> None:
        """Stop in front of each call from now on, and live by the explorer's clock."""
        replace_calls(self._stopping, more=_MORE)
        base, base_ns, offset = 1000.0, 1000 * 10**9, self._real
        time.monotonic = lambda: base + self._seconds
        time.monotonic_ns = lambda: base_ns + int(self._seconds * 1e9)
        time.time = lambda: offset() + self._seconds
        time.sleep = self._sleep  # type: ignore[assignment]
        select.epoll = lambda: _Poll(self._sleep, _epoll())  # type: ignore[misc, assignment]

    def _stopping(self, bound: str, call: Callable[..., Any]) -> Callable[..., Any]:
        name = _NAMES.get(bound, bound)

        def stopped(*args: Any, **kwargs: Any) -> Any:
            files = self._files(name, args, kwargs)
            low, high = _range(name, args)
            makes = name == "open" and bool(args[1] & os.O_CREAT) and not self._is_there(files[0])
            self._tell("call", name, str(low), str(high), str(int(makes)), *files)
            self._wait()
            self._refused = ""
            try:
                found = call(*args, **kwargs)
            except OSError:
                self._note("outcome", "failed")
                raise
            if name == "lock_descriptor" and not found:
                self._refused = files[0]
                self._note("outcome", "refused")
            return found

        return stopped

    def _files(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        try:
            return files_of(name, args, kwargs, self._readlink)
        except OSError:
            return [""]  # a number that nothing has

    def _is_there(self, path: str) -> bool:
        try:
            self._lstat(path)
        except OSError:
            return False
        return True

    def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        self._tell("sleep", str(seconds), self._refused)
        self._wait()

    def _note(self, *words: str) -> None:
        """Tell the controller with the next message."""
        self._untold.append("\0".join(words) + "\n")

    def _tell(self, *words: str) -> None:
        self._note(*words)
        self._write(self._sender, "".join(self._untold).encode())
        self._untold.clear()

    def _wait(self) -> None:
        word = self._read(self._receiver, WORD.size)
        if not word:
            _exit(1)  # the controller is gone
        self._seconds, self.step = WORD.unpack(word)
        while self._waiting:
            self._waiting.pop()["start"] = self.step

    def finish(self, error: str) -> None:
        """State what was found, as the last word."""
        self._tell("end", json.dumps({"events": self.events, "error": error}))


_epoll: Final = select.epoll


class _Poll:
    """An epoll whose wait is a sleep by the explorer's clock."""

    def __init__(self, sleep: Callable[[float], None], real: Any) -> None:
        self._sleep, self._real = sleep, real

    def register(self, *given: Any) -> None:
        """Register as the real one."""
        self._real.register(*given)

    def poll(self, seconds: float) -> Any:
        """Returns the events, which come at once or after one sleep."""
        found = self._real.poll(0)
        if not found:
            self._sleep(seconds)
            found = self._real.poll(0)
        return found


def _range(name: str, args: tuple[Any, ...]) -> tuple[int, int]:
    if name == "pread":
        return args[2], args[2] + args[1]
    if name == "pwrite":
        return args[2], args[2] + len(args[1])
    return 0, _ALL


def run_process(act: Callable[[Stepper], Callable[[], None]], number: int, sender: int, receiver: int) -> None:
    """Prepare an operation, make its steps as the controller says, and end this process. Never returns."""
    code = 1
    try:
        die_with_parent()
        gc.disable()  # finalizers make calls, and would make them at any step
        random.seed(number)
        vars(lockcache.filestream.disk.owners)["next_serial"] = itertools.count().__next__
        stepper = Stepper(sender, receiver)
        error = ""
        try:
            operation = act(stepper)
            stepper.arm()
            operation()
        except Exception:  # noqa: BLE001 - it is the controller's
            error = traceback.format_exc()
        stepper.finish(error)
        code = 0
    finally:
        _exit(code)

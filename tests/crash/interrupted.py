# SPDX-License-Identifier: Apache-2.0
"""An exception in front of every single instruction of an action, and checks of what the action leaves.

A signal handler raises such an exception too, but Python handles signals only between some of its instructions, which
differ from version to version. The frames of this package, also of its clean-up (``finally``, ``release``,
``__exit__``), and those of filelock are traced. Only the ``__del__`` of a lease is not traced, because the interpreter
loses exceptions that are raised while it drops an object.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import filelock

import lockcache
from lockcache import FileStreamProgramCache
from tests.crash.measure import assert_accounting_is_not_too_low, assert_one_recount_repairs_all
from tests.unit.material import descriptors

_TRACED: Final = tuple(os.path.dirname(package.__file__) + os.sep for package in (lockcache, filelock))
_UNTRACED: Final = "__del__"


class Interrupt(BaseException):
    """The exception, as of a signal handler."""


class _Tracer:
    """Calls ``reached`` in front of the ``number``-th instruction; counts all instructions if there are fewer."""

    def __init__(self, number: int, reached: Callable[[], None]) -> None:
        self.left = number
        self.seen = 0
        #: The first and the last number of each instruction.
        self.instructions: dict[tuple[CodeType, int], tuple[int, int]] = {}
        self.where = ""
        self._reached = reached

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(_TRACED) or _is_being_dropped(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            self.seen += 1
            place = frame.f_code, frame.f_lasti
            self.instructions[place] = self.instructions.get(place, (self.seen, 0))[0], self.seen
            if self.seen == self.left:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}, byte {frame.f_lasti}"
                self._reached()
        return self._instruction


def _raise() -> None:
    raise Interrupt


def _is_being_dropped(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == _UNTRACED:
            return True
        frame = frame.f_back
    return False


def count_steps(action: Callable[[], object]) -> int:
    """Returns the number of instructions of an action."""
    tracer = _Tracer(-1, _raise)
    _run(action, tracer)
    return tracer.seen


def steps_of(action: Callable[[], object], most: int) -> list[int]:
    """Returns the numbers of the steps before which to interrupt an action: the first and the last of each instruction.

    If there are more than ``most``, returns so many of them, spread evenly.
    """
    tracer = _Tracer(-1, _raise)
    _run(action, tracer)
    steps = sorted({number for both in tracer.instructions.values() for number in both})
    return steps[:: -(-len(steps) // most)]


def interrupts(prepare: Callable[[], Callable[[], object]], numbers: Iterable[int]) -> Iterator[str]:
    """Interrupt an action in front of its ``numbers``-th instructions, one in each run. Yields the place of each.

    ``prepare`` is called before each run and returns the action. Yields nothing for a run that was not interrupted.
    """
    for number in numbers:
        tracer = _Tracer(number, _raise)
        if _run(prepare(), tracer):
            yield f"instruction {number}, {tracer.where}"


def interrupt_at(action: Callable[[], object], number: int) -> list[Interrupt]:
    """Interrupt an action in front of its ``number``-th instruction. Returns the exception, if the action came so far.

    The exception keeps the frames that it ended alive, and all objects that only these frames have.
    """
    before, raised = sys.gettrace(), list[Interrupt]()
    sys.settrace(_Tracer(number, _raise))
    try:
        action()
    except Interrupt as error:
        raised.append(error)
    finally:
        sys.settrace(before)
    return raised


def run_to(action: Callable[[], object], reached: Callable[[], None], number: int) -> str:
    """Run an action, and ``reached`` in front of its ``number``-th instruction. Returns that instruction's place."""
    tracer = _Tracer(number, reached)
    _run(action, tracer)
    return tracer.where


def _run(action: Callable[[], object], tracer: _Tracer) -> bool:
    """Run the action. Returns whether it was interrupted."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        action()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def assert_nothing_is_held(cache: FileStreamProgramCache) -> None:
    """Assert that no lock is held, by trying each through another open file, as other processes do; and close all."""
    _assert_nothing_is_open(cache)
    directory = cache._directory
    for lock in (*directory.locks.values(), directory.room_lock, directory.lock):
        assert not lock._holders, f"a thread holds {lock.path}"
    for file in Path(directory.layout.own).glob("lea*/*"):
        assert _is_free(file), f"{file} is held"
    for file in Path(directory.layout.locks).iterdir():
        assert _is_free(file), f"{file} is held"


def _is_free(file: Path) -> bool:
    if file.is_fifo():
        return True  # a file of a queue, which no process locks
    with file.open("r+b") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def assert_nothing_is_left(cache: FileStreamProgramCache) -> None:
    """Assert that no lock is held, no file is open, and that one recount corrects everything."""
    assert_nothing_is_held(cache)
    assert_accounting_is_not_too_low(Path(cache.path))
    assert_one_recount_repairs_all(cache)


def _assert_nothing_is_open(cache: FileStreamProgramCache) -> None:
    """Assert that only descriptors are open that a cache keeps."""
    opened = Counter(fd.split(" ", 1)[1] for fd in descriptors())
    if cache._directory.layout.is_network:  # after a failed look-up there, the kernel calls an open file deleted
        opened = Counter(path.removesuffix(" (deleted)") for path in opened.elements())
    ours = {path: count for path, count in opened.items() if path.startswith(cache.path)}
    assert all(_is_kept(path) and count == 1 for path, count in ours.items()), ours


def _is_kept(path: str) -> bool:
    """Returns whether a cache keeps such a file open, which is a lock or the usage page."""
    return path.endswith("/lockcache/state") or "/lockcache/locks/" in path

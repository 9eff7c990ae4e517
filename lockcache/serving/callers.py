# SPDX-License-Identifier: Apache-2.0
"""Callers: where in a program a compilation was asked for, in one line.

Promises a bound, and that no frame of lockcache's own is in it. A task of asyncio, whose look-ups run in threads, is
found by :data:`awaiting`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

__all__ = ["awaiting", "callers"]

#: A stack of a framework is deeper, and what is above this is the program's main loop.
_MOST_FRAMES: Final = 16

# Between the program and lockcache's own frames.
_PASSED_OVER: Final = ("lockcache", "contextlib", "threading")

#: The task for which a thread of :mod:`lockcache.calling` looks something up.
awaiting: ContextVar[Any] = ContextVar("lockcache_awaiting", default=None)


def callers() -> str:
    """Returns the places in the program that led here, the innermost first."""
    found: list[str] = []
    task = awaiting.get()
    for frame in (*_frames(sys._getframe(1)), *(() if task is None else _frames_of(task))):
        module = str(frame.f_globals.get("__name__", ""))
        if module in _PASSED_OVER or module.startswith("lockcache."):
            continue
        if len(found) == _MOST_FRAMES:
            return " < ".join([*found, "..."])
        code = frame.f_code
        found.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
    return " < ".join(found)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frames_of(task: Any) -> list[FrameType]:
    """Returns the frames of a task that waits, the innermost first."""
    found: list[FrameType] = []
    step = task.get_coro()
    while step is not None:
        frame = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is not None:
            found.append(frame)
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None)
    return found[::-1]

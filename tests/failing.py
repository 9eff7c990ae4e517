# SPDX-License-Identifier: Apache-2.0
"""Calls of the operating system that fail in this process: the n-th of a kind, or all from the n-th on.

Functions of :mod:`os` are replaced, so that a test can have any single call of an operation fail without a mount, also
in a program of a framework's, whose Python has no pytest. A ``close`` that fails has closed the file all the same, as
in Linux.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, Final

#: The functions of each kind of call. Not ``access``, which only answers no for any error.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "open": ("open", "mkfifo"),
    "read": ("read", "pread"),
    "write": ("write", "pwrite", "ftruncate"),
    "fsync": ("fsync",),
    "close": ("close",),
    "unlink": ("unlink", "rmdir"),
    "rename": ("rename",),
    "stat": ("fstat", "stat", "lstat", "statvfs"),
    "list": ("listdir", "scandir"),
    "mkdir": ("mkdir",),
    "attribute": ("getxattr", "setxattr", "utime"),
    "lock": ("flock",),
}
_PACKAGES: Final = ("lockcache.", "filelock.")


class FailingCalls:
    """Decides which call fails. Only calls of the thread that armed it count."""

    def __init__(self, is_counted: Callable[[FrameType], bool] = lambda _: True) -> None:
        """``is_counted``: whether a call that a frame makes counts."""
        self._is_counted = is_counted
        self._thread = 0
        self._kind = ""
        self._fails: Callable[[], bool] = lambda: False
        self._number = 0

    def sites(self, action: Callable[[], object], kind: str) -> list[int]:
        """Returns the numbers of the calls of an action to fail: the first and the last at each place in the code."""
        seen: dict[tuple[object, ...], tuple[int, int]] = {}
        count = 0

        def look() -> bool:
            nonlocal count
            place = tuple(_places(sys._getframe(3)))
            seen[place] = seen.get(place, (count, 0))[0], count
            count += 1
            return False

        with self._armed(kind, look):
            action()
        return sorted({number for both in seen.values() for number in both})

    @contextlib.contextmanager
    def failing(self, kind: str, left: int, number: int, *, goes_on: bool) -> Iterator[None]:
        """Fail the call of this kind that comes after ``left`` others in the block, with an errno.

        If it ``goes_on``, fail all later ones too.
        """
        count = -1

        def fail() -> bool:
            nonlocal count
            count += 1
            return count == left or (goes_on and count > left)

        self._number = number
        with self._armed(kind, fail):
            yield

    def instead_of(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function that replaces ``call``."""

        def called(*arguments: Any, **options: Any) -> Any:
            if kind != self._kind or self._thread != threading.get_ident():
                return call(*arguments, **options)
            if not (self._is_counted(sys._getframe(1)) and self._fails()):
                return call(*arguments, **options)
            if kind == "close":
                call(*arguments, **options)
            raise OSError(self._number, os.strerror(self._number))

        return called

    @contextlib.contextmanager
    def _armed(self, kind: str, fails: Callable[[], bool]) -> Iterator[None]:
        # What an earlier round left is collected outside of this block: its calls are not the operation's.
        gc.disable()
        self._kind, self._fails, self._thread = kind, fails, threading.get_ident()
        try:
            yield
        finally:
            self._thread = 0
            gc.enable()


def _places(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    """Yields the frames of the package that lead to a call."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_PACKAGES):
            yield frame.f_code.co_qualname, frame.f_lineno
        frame = frame.f_back


def replace_calls(calls: FailingCalls, replace: Callable[[ModuleType, str, object], object]) -> None:
    """Have ``calls`` decide of the functions of :data:`KINDS`, in every module of the package that has one by name."""
    instead: dict[int, Callable[..., Any]] = {}
    for kind, names in KINDS.items():
        for name in names:
            module: ModuleType = fcntl if name == "flock" else os
            call = getattr(module, name)
            instead[id(call)] = called = calls.instead_of(kind, call)
            replace(module, name, called)
    for found in [found for name, found in sys.modules.items() if name.startswith(_PACKAGES)]:
        for name, value in list(vars(found).items()):
            if id(value) in instead:
                replace(found, name, instead[id(value)])

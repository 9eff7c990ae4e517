# SPDX-License-Identifier: Apache-2.0
"""Ends a command that was asked to end, or whose terminal was closed, as Ctrl-C does: by an exception.

So that what it made and has not finished is removed on its way out, and the terminal is given back as it was.

An exception that comes in the midst of a destructor, or of what the import system does at the end of each import, is
printed there and goes no further: the command would go on, and each second of imports is a chance for that. So the
signal is sent once more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FrameType
from typing import Final, NoReturn

# The signals whose default action ends no process.
_HARMLESS: Final = {signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG,
                    signal.SIGWINCH}  # fmt: skip
#: The signals that end a Python program by default, and can be caught. Python ignores SIGPIPE and SIGXFSZ.
FATAL: Final = frozenset(
    signal.valid_signals() - _HARMLESS - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
)

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_INTERRUPTING: Final = (signal.SIGINT, *_ENDING)
# The delay until the signal is sent again: by then the destructor has ended; if it has not, the signal is sent a third
# time.
_AGAIN_SECONDS: Final = 0.01


class EndedBySignal(SystemExit):
    """SIGTERM or SIGHUP came."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def end_in_order() -> None:
    """Make SIGTERM and SIGHUP raise :class:`SystemExit` from now on, with code 128 + their number."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            signal.signal(number, _end)
    sys.unraisablehook = partial(_send_again, sys.unraisablehook)


def interrupts_raise() -> None:
    """Make Ctrl-C raise :class:`KeyboardInterrupt` from now on; it ended the program while that was loading."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ends_in_order() -> Iterator[None]:
    """End in order, like :func:`end_in_order`, for a block."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    print_unraisable = sys.unraisablehook
    end_in_order()
    try:
        yield
    finally:
        sys.unraisablehook = print_unraisable
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back(numbers: Collection[int]) -> Iterator[set[int]]:
    """Hold the signals back in this block, until :func:`signal.sigwaitinfo` fetches them. Yields the previous mask.

    Signals that were not fetched are dropped at its end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield before
    finally:
        _drop_pending(numbers)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interruptible(*, has_ended: bool = True) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end this block within :func:`held_back`, as :func:`end_in_order` says.

    ``has_ended``: signals that came before are dropped, because the program that they were for has ended.
    """
    with ends_in_order():
        if has_ended:
            _drop_pending(_INTERRUPTING)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTING)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTING)


def _drop_pending(numbers: Collection[int]) -> None:
    while signal.sigtimedwait(numbers, 0) is not None:
        pass


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets: so the command prints a summary, and threads end between two lock holds."""
    event = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def give_up_stdout() -> None:
    """Print to nowhere from now on, if that which is printed and not written yet still cannot be.

    To be called when writing failed: else the interpreter tries again at its end, and complains in its own words.
    """
    try:
        print(end="", flush=True)  # nothing where there is no stdout
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise EndedBySignal(number)


def _send_again(usual: Callable[[sys.UnraisableHookArgs], object], lost: sys.UnraisableHookArgs) -> None:
    """Call the ``usual`` :func:`sys.unraisablehook`; if the exception was to end the command, send its signal again."""
    error = lost.exc_value
    if not isinstance(error, (EndedBySignal, KeyboardInterrupt)):
        usual(lost)
        return
    number = error.number if isinstance(error, EndedBySignal) else signal.SIGINT
    threading.Thread(target=_send_when_left, args=(number, _send_again.__code__), daemon=True).start()


def _send_when_left(number: int, hook: CodeType) -> None:
    """Send a signal once the main thread has left ``hook``: an exception raised in there is lost too."""
    main = threading.main_thread().ident
    is_in_hook = True
    while is_in_hook:
        time.sleep(_AGAIN_SECONDS)
        frame = sys._current_frames().get(main or 0)
        is_in_hook = any(each.f_code is hook for each, _ in traceback.walk_stack(frame)) if frame else False
    os.kill(os.getpid(), number)

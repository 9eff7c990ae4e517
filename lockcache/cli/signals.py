"""Ends a command that was asked to end, or whose terminal was closed, as Ctrl-C does: by an exception.

So that what it made and has not finished is removed on its way out, and the terminal is given back as it was.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

__all__ = ["end_in_order", "ends_in_order", "give_up_stdout", "interrupts"]

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def end_in_order() -> None:
    """From now on SIGTERM and SIGHUP raise :class:`SystemExit`, code 128 + their number."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            signal.signal(number, _end)


@contextmanager
def ends_in_order() -> Iterator[None]:
    """The same for a block."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    end_in_order()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets the event: what was done by then is worth a summary, and threads end between two lock holds."""
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
    sys.exit(128 + number)

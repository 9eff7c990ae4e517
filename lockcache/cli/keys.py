"""Single keys from a terminal, while a live view is up. Keeps one promise: the terminal is left as it was found."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["single_keys", "wait_for_quit"]


@contextmanager
def single_keys() -> Iterator[None]:
    """Keys come one by one and are not echoed; Ctrl-C stays what it is. SIGTERM ends the block too."""
    before_term = signal.signal(signal.SIGTERM, _terminate)
    if not sys.stdin.isatty():
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before_term)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, before_term)


def wait_for_quit(seconds: float) -> bool:
    """Wait so long; whether somebody pressed ``q``."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        # Not sys.stdin.read: what it buffers, select does not see. Nothing: the terminal went away.
        pressed = os.read(sys.stdin.fileno(), 64)
        if not pressed or pressed[:1] in (b"q", b"Q"):
            return True


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)

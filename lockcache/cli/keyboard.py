"""Single keys from a terminal, while a live view is up. Keeps one promise: the terminal is left as it was found."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from lockcache.cli.signals import ends_in_order

__all__ = ["single_keys", "wait_for_quit"]

# What arrows and function keys send.
_ESCAPES: Final = re.compile(rb"\x1b(?:\[[0-9;]*[@-~]|O.|.)?", re.DOTALL)


@contextmanager
def single_keys() -> Iterator[None]:
    """Keys come one by one and are not echoed; Ctrl-C stays what it is. SIGTERM and SIGHUP end the block too."""
    with ends_in_order():
        if not sys.stdin.isatty():
            yield
            return
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        try:
            tty.setcbreak(fd)
            yield
        finally:
            with suppress(termios.error):  # a terminal that was closed is nobody's any more
                termios.tcsetattr(fd, termios.TCSADRAIN, before)


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
        # Of several at once, typed while the view was made, each counts; F2 is ESC O Q, and is not a Q.
        if not pressed or b"q" in _ESCAPES.sub(b"", pressed).lower():
            return True

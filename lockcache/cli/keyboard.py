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


def wait_for_key(seconds: float, keys: str) -> str:
    """Wait so long; the key of ``keys`` that somebody pressed meanwhile, empty if none. Lower case stands for both.

    The first of ``keys`` also where the terminal went away.
    """
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return ""
        # Not sys.stdin.read: what it buffers, select does not see.
        pressed = os.read(sys.stdin.fileno(), 64)
        if not pressed:
            return keys[0]
        # Of several at once, typed while the view was made, each counts; F2 is ESC O Q, and is not a Q.
        typed = _ESCAPES.sub(b"", pressed).lower().decode("ascii", "replace")
        for key in keys:
            if key in typed:
                return key

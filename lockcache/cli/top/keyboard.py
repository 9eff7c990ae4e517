# SPDX-License-Identifier: Apache-2.0
"""Single keys from a terminal, while a live view is up. Keeps one promise: the terminal's state is restored."""

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

# The sequences that arrows and function keys send.
_ESCAPES: Final = re.compile(rb"\x1b(?:\[[0-9;]*[@-~]|O.|.)?", re.DOTALL)


@contextmanager
def single_keys() -> Iterator[None]:
    """Receive keys one by one in this block, without echo. Ctrl-C, SIGTERM and SIGHUP end the block as usual."""
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
            with suppress(termios.error):  # the terminal was closed: there is nothing to restore
                termios.tcsetattr(fd, termios.TCSADRAIN, before)


def wait_for_key(seconds: float, keys: str) -> str:
    """Wait for at most ``seconds``. Returns the key of ``keys`` that was pressed, in any case; empty if none.

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
        # Not sys.stdin.read: select does not see what it buffers.
        pressed = os.read(sys.stdin.fileno(), 64)
        if not pressed:
            return keys[0]
        # Each of several keys counts, if they were typed while the view was made; F2 is ESC O Q, and is not a Q.
        typed = _ESCAPES.sub(b"", pressed).lower().decode("ascii", "replace")
        for key in keys:
            if key in typed:
                return key

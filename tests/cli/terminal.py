"""The operator's command on a terminal: a real one, of which the test holds the other end."""

from __future__ import annotations

import os
import pty
import subprocess
from types import TracebackType

import psutil

from tests.cli.command import LOCKCACHE

# A guard against hangs, never a measurement.
_HANG_SECONDS = 60.0


class OnTerminal:
    """``with OnTerminal("top", path) as terminal:`` is running, and killed at the end if it lives."""

    def __init__(self, *arguments: object) -> None:
        self._ours, theirs = pty.openpty()
        # setsid: so that the terminal is its own, and Ctrl-C typed there is its SIGINT.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", LOCKCACHE, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        )
        os.close(theirs)
        self.said = b""

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(_HANG_SECONDS)
        os.close(self._ours)

    def read_until(self, text: bytes) -> None:
        """Read on until ``text`` was said."""
        while text not in self.said:
            self.said += os.read(self._ours, 4096)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Read to the end; the exit code."""
        try:
            while part := os.read(self._ours, 4096):
                self.said += part
        except OSError:
            pass  # how a terminal says that its other end is closed
        return self.process.wait(_HANG_SECONDS)

    def signal_command(self, number: int) -> None:
        """Signal the command itself: setsid waits next to it."""
        [child] = psutil.Process(self.process.pid).children() or [psutil.Process(self.process.pid)]
        child.send_signal(number)

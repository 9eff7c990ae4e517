# SPDX-License-Identifier: Apache-2.0
"""The operator's command on a real terminal, whose other end the test holds."""

from __future__ import annotations

import os
import pty
import subprocess
from types import TracebackType

from tests.cli.command import LOCKCACHE

# A guard against hangs, never a measurement.
_HANG_SECONDS = 60.0


class OnTerminal:
    """Runs a command: ``with OnTerminal("top", path) as terminal:``. The end of the block kills it."""

    def __init__(self, *arguments: object, columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        # setsid makes the terminal the command's own, so that a typed Ctrl-C becomes its SIGINT.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", LOCKCACHE, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"},
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
        """Read until the command has printed ``text``."""
        while text not in self.said:
            self.said += os.read(self._ours, 4096)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Read to the end. Returns the exit code."""
        try:
            while part := os.read(self._ours, 4096):
                self.said += part
        except OSError:
            pass  # a terminal raises this when its other end is closed
        return self.process.wait(_HANG_SECONDS)

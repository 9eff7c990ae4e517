# SPDX-License-Identifier: Apache-2.0
"""Processes that do what may hang, and answer in lines of JSON.

Keeps one promise: the caller gets an answer, or learns within the given time that there is none. A system call on a
dead network mount may never return, and not even SIGKILL ends the process that made it; so such calls are made in a
process that can be left behind. Each such process leads its own process group, so that Ctrl-C reaches only the process
that asks.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

_LARGEST_ANSWER_BYTES: Final = 1 << 20
# For the kernel to end a process that is killed and not stuck.
_END_SECONDS: Final = 1.0
# For a process that has answered, and is asked nothing more, to end by itself on a busy machine.
_LEAVE_SECONDS: Final = 5.0


class ChildHungError(Exception):
    """A child did not answer in time. It was killed, and may be stuck in the kernel."""


class ChildDiedError(Exception):
    """A child ended without an answer."""


class Child:
    """A process that runs ``python -m module``, started when it is first asked something."""

    def __init__(self, module: str, *, own_group: bool) -> None:
        self._module = module
        self._own_group = own_group
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], timeout_seconds: float) -> Any:
        """Send one request and wait for its answer."""
        self.send(request)
        return self.answer(timeout_seconds)

    def send(self, request: dict[str, Any]) -> None:
        """Send one request. Its answer has to be fetched before the next one is sent."""
        process = self._started()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            self.end()
            raise ChildDiedError(self._module) from None

    def answer(self, timeout_seconds: float) -> Any:
        """Returns the answer to the last request."""
        deadline = time.monotonic() + timeout_seconds
        out = self._started().stdout.fileno()  # type: ignore[union-attr]
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                self.end()
                raise ChildHungError(self._module)
            part = os.read(out, 65536)
            line += part
            if not part or len(line) > _LARGEST_ANSWER_BYTES:
                self.end()
                raise ChildDiedError(self._module)
        return json.loads(line)

    def close(self) -> None:
        """End a child that has answered, and wait for its end; kill it if that takes too long."""
        if self._process is None:
            return
        try:
            with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
                self._process.stdin.close()  # type: ignore[union-attr]
                self._process.wait(_LEAVE_SECONDS)
        finally:
            self.end()

    def end(self) -> None:
        """Kill the child and its own children, and wait for its end, unless it is stuck."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:  # else its number may be another's
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if self._own_group else os.kill)(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # Not in our working directory: `-m` looks for modules there first, and it may be the mount that is dead.
            path = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry))
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # one that is stuck would keep our pipe open, and its reader waiting
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=self._own_group,
            )
        return self._process


def serve(do: Callable[[dict[str, Any]], Any]) -> None:
    """Answer each line of stdin, as a child process, until the process that asks is gone."""
    for line in sys.stdin.buffer:
        answer = json.dumps(do(json.loads(line))).encode() + b"\n"
        try:
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            return

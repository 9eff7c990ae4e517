# SPDX-License-Identifier: Apache-2.0
"""Running a function in a forked child, for tests of what a child inherits."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any

# A child that hangs is a failure that these tests look for, and must not outlive the test.
_CHILD_SECONDS = 60


def in_child(work: Callable[[], Any]) -> Any:
    """Returns the result of ``work()`` in a child made by ``os.fork``. Raises AssertionError for its exception."""
    pid, read = start(work)
    return finish(pid, read)


def start(work: Callable[[], Any]) -> tuple[int, int]:
    """Call ``work()`` in a child. Returns its number and the pipe that its answer comes by, for :func:`finish`."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    status = 1
    try:
        # Not the runner's handler, which raises an exception, with which the child would go on as a second test runner.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_CHILD_SECONDS)
        try:
            answer = (True, work())
        except BaseException:  # noqa: BLE001 - the parent shows it
            answer = (False, traceback.format_exc())
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe)
        status = 0
    finally:
        os._exit(status)


def finish(pid: int, read: int) -> Any:
    """Returns the answer of a child."""
    with os.fdopen(read, "rb") as pipe:
        blob = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert blob, f"the child ended without an answer, status {status:#x}"
    is_result, answer = pickle.loads(blob)
    assert is_result, answer
    return answer

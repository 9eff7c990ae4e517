# SPDX-License-Identifier: Apache-2.0
"""A real daemon under test, in a forked process, watched by its log with ``--json``."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from lockcache_daemon.cli import main
from tests.programs import ForkedProgram, run_forked

SCRIPT = str(Path(sys.executable).parent / "lockcache-daemon")

# A guard against hangs and never a measurement: all waits take a fraction of it.
HANG_SECONDS = 60.0

# ``make coverage`` sets this variable for the processes that tests start.
_IS_MEASURED = "COVERAGE_PROCESS_CONFIG" in os.environ
_END_SECONDS = 5.0


def run_daemon(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the daemon to its end, for bad options, ``--once`` and ``--dry-run``."""
    return run_forked(main, "lockcache-daemon", *arguments, timeout=HANG_SECONDS, **options)


def events_of(stdout: str) -> dict[str, dict[str, Any]]:
    return {said["event"]: said for said in map(json.loads, stdout.splitlines())}


class RunningDaemon:
    """Runs a daemon, which serves in the block: ``with RunningDaemon("--max-size", "1M", path) as daemon:``.

    The end of the block kills the daemon if it still lives.
    """

    def __init__(self, *arguments: object, starts: int = 1) -> None:
        self._starts = starts
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self._log, self._errors = os.fdopen(out), os.fdopen(err)
        with open(os.devnull) as nothing, os.fdopen(out_end, "wb"), os.fdopen(err_end, "wb"):
            words = ["lockcache-daemon", "--json", "--interval", "50ms", *arguments]
            self.process = ForkedProgram(main, words, stdin=nothing, stdout=out_end, stderr=err_end)
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> RunningDaemon:
        self._reader.start()
        for _ in range(self._starts):
            self.wait_for("start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _IS_MEASURED and self.process.poll() is None:  # a process that is killed writes no coverage
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
        self.process.kill()
        self.process.wait(HANG_SECONDS)
        self._reader.join(HANG_SECONDS)
        self._log.close()
        self._errors.close()

    def wait_for(self, event: str) -> dict[str, Any]:
        """Returns the next event of this kind, and drops those before it."""
        while True:
            said = self._events.get(timeout=HANG_SECONDS)
            assert said is not None, f"the daemon ended before it said {event!r}: {self.errors()}"
            if said["event"] == event:
                return said

    def wait_for_each(self, *events: str) -> dict[str, dict[str, Any]]:
        """Returns the next event of each of these kinds, in any order, because each directory has a thread."""
        found: dict[str, dict[str, Any]] = {}
        while len(found) < len(events):
            said = self._events.get(timeout=HANG_SECONDS)
            assert said is not None, f"the daemon ended before it said all of {events}: {self.errors()}"
            if said["event"] in events:
                found.setdefault(said["event"], said)
        return found

    def end(self, number: int) -> int:
        """Send a signal and wait for the end. Returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_SECONDS)

    def errors(self) -> str:
        return self._errors.read()

    def _read(self) -> None:
        for line in self._log:
            self._events.put(json.loads(line))
        self._events.put(None)


def until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Wait for a condition of which there is no event. It may fail for a file that is removed meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError):
            if condition():
                return
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)


def until_asleep(thread: threading.Thread) -> None:
    """Wait until a thread sleeps in ``poll`` or a similar call."""
    until(lambda: "poll" in Path(f"/proc/self/task/{thread.native_id}/wchan").read_text())

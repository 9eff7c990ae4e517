"""The real ``lockcache-daemon``, running beside a stress run.

Found next to the interpreter, where an install puts it. Its log is kept, and its sweeps are told at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.errors import UnusableError
from lockcache_stress.history.daemon import recorded_daemon

__all__ = ["DaemonProcess", "find_daemon"]

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0


def find_daemon() -> str | None:
    """The daemon's path, or ``None`` if it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "lockcache-daemon")
    return beside if os.access(beside, os.X_OK) else shutil.which("lockcache-daemon")


class DaemonProcess:
    """Runs for as long as its ``with`` block; then :attr:`result` says what it did."""

    def __init__(
        self,
        directory: str,
        control: str,
        max_size_bytes: int,
        options: Sequence[str] = (),
        *,
        history: str | None = None,
    ) -> None:
        """``history``: the folder in which what it removes is recorded."""
        self._directory = directory
        self._history = history
        self._log = os.path.join(control, "daemon.log")
        self._max_size_bytes = max_size_bytes
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.result: dict[str, Any] = {}

    def __enter__(self) -> DaemonProcess:
        program = find_daemon()
        if program is None:
            raise UnusableError("lockcache-daemon is not installed beside this interpreter: pip install lockcache[cli]")
        command = [program]
        if self._history is not None:  # the same program, but that what it removes is in the histories
            command = recorded_daemon(self._history)
        command += ["--max-size", str(self._max_size_bytes), "--interval", "0.5s", "--json"]
        command += [*self._options, self._directory]
        self._output = open(self._log, "wb")
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self._wait_for_cap()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None or self._output is None:
            return
        died = process.poll() is not None
        process.send_signal(signal.SIGTERM)
        try:
            # It ends with 0 when it is asked to; by a signal where it was dying already.
            died |= process.wait(_STOP_SECONDS) < 0
        except subprocess.TimeoutExpired:
            died = True
            process.kill()
            process.wait()
        self._output.close()
        self.result = {**_read_log(self._log), "exit_code": process.returncode, "ended_when_asked": not died}

    def _wait_for_cap(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        cache = FileStreamProgramCache(self._directory)
        while cache.max_size_bytes != self._max_size_bytes:
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise UnusableError(f"lockcache-daemon did not start: {_tail(self._log)}")
            time.sleep(0.02)


def _read_log(path: str) -> dict[str, Any]:
    """Sweeps, evictions and complaints, from its JSON lines. A line that is no JSON is a complaint (a traceback)."""
    sweeps, complaints = [], []
    with open(path) as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "error", "message": line.rstrip()}
            if event.get("event") == "sweep":
                sweeps.append(event)
            elif event.get("event") in ("error", "warning"):
                complaints.append(event)
    return {
        "sweeps": len(sweeps),
        "evicted_entries": sum(sweep["evicted_entries"] for sweep in sweeps),
        "evicted_bytes": sum(sweep["evicted_bytes"] for sweep in sweeps),
        "complaints": complaints,
    }


def _tail(path: str) -> str:
    with open(path) as file:
        return " | ".join(file.read().splitlines()[-3:]) or "it said nothing"

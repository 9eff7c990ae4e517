"""Real ``lockcache-daemon`` processes next to a stress run: one, or several that stand by for one another.

The program is a module of this interpreter, so that it is found in a checkout on ``PYTHONPATH`` as in an install, and
is never another version's. Logs are kept, and sweeps are reported at the end. :class:`Relay` has one of several daemons
manage the directory while the others stand by; they are SIGKILLed and replaced at random, and none is left when its
``with`` block ends. What they did is judged from their logs, by :mod:`lockcache_stress.judge.tenures`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import IO, Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.errors import UnusableError
from lockcache_stress.judge import Life, TenureVerdict, judge_tenures, recorded_command
from lockcache_stress.run.outcome import Check

__all__ = ["DaemonProcess", "Relay", "find_daemon"]

_DAEMON: Final = "lockcache_daemon"
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0

# Long enough that mostly one has taken over and swept before the next death, short enough that some deaths fall into
# a start, a takeover or another's death.
_SHORTEST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.8
# On a busy machine a daemon needs longer than that for its start: most deaths wait until somebody can take over.
_AT_REST_SHARE: Final = 0.7
_REST_SECONDS: Final = 10.0
# A daemon that ticks often takes over at a tick; the others have to look in between.
_INTERVALS: Final = ("20ms", "1s")
_FIRST_SECONDS: Final = 60.0


def find_daemon() -> list[str] | None:
    """Returns the command that runs the daemon of this interpreter, ``None`` if it has none."""
    return [sys.executable, "-m", _DAEMON] if find_spec(_DAEMON) is not None else None


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
        layout: str | None = None,
    ) -> None:
        """``history``: the folder in which what it removes is recorded. ``layout``: of another program's directory."""
        self._directory = directory
        self._history = history
        self._log = os.path.join(control, "daemon.log")
        self._max_size_bytes = max_size_bytes
        self._options = [*options, *(["--layout", layout] if layout else [])]
        self._is_ours = layout is None
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.result: dict[str, Any] = {}

    def __enter__(self) -> DaemonProcess:
        program = find_daemon()
        if program is None:
            raise UnusableError("lockcache-daemon is missing next to this interpreter: pip install lockcache[cli]")
        command = program
        if self._history is not None:  # the same program, but that what it removes is in the histories
            command = recorded_command(self._history)
        command = [*command, "--max-size", f"{self._max_size_bytes}B", "--interval", "0.5s", "--json"]
        command += [*self._options, self._directory]
        self._output = open(self._log, "wb")
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self._wait_until_in_force()
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

    def _wait_until_in_force(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        is_in_force = self._has_cap() if self._is_ours else self._has_started
        while not is_in_force():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise UnusableError(f"lockcache-daemon did not start: {_tail(self._log)}")
            time.sleep(0.02)

    def _has_cap(self) -> Callable[[], bool]:
        cache = FileStreamProgramCache(self._directory)
        return lambda: cache.max_size_bytes == self._max_size_bytes

    def _has_started(self) -> bool:
        return b'"start"' in _read(self._log)


def _read_log(path: str) -> dict[str, Any]:
    """Sweeps, evictions and complaints, from its JSON lines. A line that is not JSON is a complaint (a traceback)."""
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


class Relay:
    """Runs ``count`` daemons for as long as its ``with`` block."""

    def __init__(
        self,
        directory: str,
        control: str,
        max_size_bytes: int,
        *,
        count: int,
        seed: int,
        command: Sequence[str] | None = None,
    ) -> None:
        program = find_daemon()
        if command is None and program is None:
            raise UnusableError("lockcache-daemon is missing next to this interpreter: pip install lockcache[cli]")
        options = ["--max-size", f"{max_size_bytes}B", "--json", "--standby", directory]
        self._command = [*(command or program or ()), *options]
        self._control = control
        self._count = count
        self._rng = random.Random(f"{seed}/relay")
        self._running: list[_Daemon] = []
        self._lives: list[Life] = []
        self._complaints: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._replace_at_random, name="relay")
        self._made = 0
        #: SIGKILLs.
        self.kills = 0
        self.verdict = TenureVerdict()

    def __enter__(self) -> Relay:
        try:
            self._running = [self._start() for _ in range(self._count)]
            self._wait_for_first()
        except BaseException:
            self._end_all()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._end_all()
        self.verdict = judge_tenures(self._lives)

    def keeping(self) -> list[str]:
        """Those that run now and have said that they keep the directory. More than one is what must never be."""
        return [daemon.name for daemon in list(self._running) if b'"start"' in _read(daemon.log)]

    def checks(self) -> list[Check]:
        """The verdict, line by line."""
        wrong, took = self.verdict.wrong, sorted(self.verdict.takeovers_ns)
        slowest = f"{took[-1] / 1e9:.2f} s, median {took[len(took) // 2] / 1e9:.2f} s" if took else "none"
        return [
            Check("SIGKILLs of daemons", str(self.kills), "> 0", self.kills > 0),
            Check("daemons that kept the directory", str(self.verdict.tenures), "> 0", self.verdict.tenures > 0),
            Check("sweeps by daemons", str(self.verdict.sweeps)),
            Check("slowest takeover", slowest),
            Check("two daemons at once", str(len(wrong)), "0", not wrong),
            Check("daemon errors", str(len(self._complaints)), "0", not self._complaints),
        ]

    def findings(self) -> list[dict[str, Any]]:
        """What was wrong, to find out why."""
        return [{"error": text} for text in (*self.verdict.wrong, *self._complaints)]

    def _replace_at_random(self) -> None:
        pause = _SHORTEST_PAUSE_SECONDS
        while not self._stop.wait(pause):
            victim = self._running.pop(self._rng.randrange(len(self._running)))
            # Mostly the worst way; an end in good order hands over too, and a process that hangs hands over nothing.
            way = self._rng.random()
            if way < 0.1:
                victim.send(signal.SIGSTOP)
                self._stop.wait(self._rng.uniform(0.05, 0.4))
                victim.send(signal.SIGCONT)
                self._running.append(victim)
            else:
                self.kills += way >= 0.2
                self._lives.append(self._end(victim, signal.SIGTERM if way < 0.2 else signal.SIGKILL))
                self._running.append(self._start())
            if self._rng.random() < _AT_REST_SHARE:
                self._wait_for_rest()
            pause = self._rng.uniform(_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    def _wait_for_rest(self) -> None:
        """Until one keeps the directory and another stands by, or it takes too long to hope for."""
        deadline = time.monotonic() + _REST_SECONDS
        while time.monotonic() < deadline and not self._stop.wait(0.02):
            if self.keeping() and any(b'"standby"' in _read(daemon.log) for daemon in self._running):
                return

    def _start(self) -> _Daemon:
        self._made += 1
        name = f"daemon {self._made}"
        path = os.path.join(self._control, f"daemon-{self._made}.log")
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [*self._command, "--interval", self._rng.choice(_INTERVALS)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return _Daemon(name, path, process)

    def _end(self, daemon: _Daemon, number: int) -> Life:
        ended_ns = daemon.send(number)
        try:
            daemon.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._complaints.append(f"{daemon.name} did not end within {_STOP_SECONDS:.0f} s")
            daemon.process.kill()
            daemon.process.wait()
        events = list(self._events(daemon))
        return Life(daemon.name, events, ended_ns)

    def _events(self, daemon: _Daemon) -> list[dict[str, Any]]:
        events = []
        with open(daemon.log) as file:
            for line in file:
                if not line.endswith("\n"):
                    break  # it was killed in the middle of saying it
                try:
                    event = json.loads(line)
                except ValueError:
                    event = {"event": "error", "message": line.rstrip()}
                if event["event"] in ("error", "warning"):
                    self._complaints.append(f"{daemon.name}: {line.strip()}")
                events.append(event)
        return events

    def _wait_for_first(self) -> None:
        """Until one keeps the directory: workers that come before it would find no cap."""
        deadline = time.monotonic() + _FIRST_SECONDS
        while not self.keeping():
            if time.monotonic() > deadline or all(each.process.poll() is not None for each in self._running):
                said = b" | ".join(_read(daemon.log) for daemon in self._running)
                raise UnusableError(f"no lockcache-daemon started: {said.decode(errors='replace')[-500:]}")
            time.sleep(0.02)

    def _end_all(self) -> None:
        for daemon in self._running:
            self._lives.append(self._end(daemon, signal.SIGTERM))
        self._running = []


class _Daemon:
    def __init__(self, name: str, log: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.log = log
        self.process = process

    def send(self, number: int) -> int:
        """When, before it can have had any effect."""
        sent_ns = time.monotonic_ns()
        self.process.send_signal(number)
        return sent_ns


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()

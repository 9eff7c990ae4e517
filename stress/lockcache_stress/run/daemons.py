# SPDX-License-Identifier: Apache-2.0
"""Real ``lockcache-daemon`` processes next to a stress run: one, or several that stand by for one another.

The program is a module of this interpreter, so that a checkout on ``PYTHONPATH`` works like an installation, and the
daemon never is another version's. Logs are kept, and sweeps are reported at the end. :class:`Relay` runs several
daemons, of which one manages the directory while the others stand by; they are SIGKILLed and replaced at random, and
none is left when its ``with`` block ends. :mod:`lockcache_stress.judge.tenures` judges the daemons by their logs.
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
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

import psutil

from lockcache import FileStreamProgramCache
from lockcache.errors import how_to_install
from lockcache_stress.errors import UnusableError
from lockcache_stress.judge import Life, TenureVerdict, judge_tenures, recorded_command
from lockcache_stress.processes import wait_until
from lockcache_stress.run.outcome import Check, some, zero

_DAEMON: Final = "lockcache_daemon"
_MISSING: Final = "lockcache-daemon is missing next to this interpreter: {}"
_COMPLAINTS: Final = ("error", "warning")
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0

# Long enough that in most cases a daemon has taken over and swept before the next death; short enough that some deaths
# come during a start, a takeover or another death.
_SHORTEST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.8
# On a busy machine a daemon needs longer for its start: most deaths wait until a daemon can take over.
_AT_REST_SHARE: Final = 0.7
_REST_SECONDS: Final = 10.0
# A daemon that ticks often takes over at a tick; a daemon that ticks rarely has to try in between.
_INTERVALS: Final = ("20ms", "1s")
_FIRST_SECONDS: Final = 60.0


def find_daemon() -> list[str] | None:
    """Returns the command that runs this interpreter's daemon; ``None`` if there is none."""
    return [sys.executable, "-m", _DAEMON] if find_spec(_DAEMON) is not None else None


class DaemonProcess:
    """A daemon for as long as its ``with`` block.

    The daemon can be watched in the block; after the block, :attr:`result` has its outcome.
    """

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
        """``history``: the folder in which its removals are recorded. ``layout``: of another program's directory."""
        # With a history, the same program runs with its removals recorded.
        self._program = find_daemon() if history is None else recorded_command(history)
        self._options = ["--max-size", f"{max_size_bytes}B", "--interval", "0.5s", "--json", *options]
        self._options += [*(["--layout", layout] if layout else []), directory]
        self._directory, self._max_size_bytes = directory, max_size_bytes
        self._has_own_layout = layout is None
        self._log = os.path.join(control, "daemon.log")
        self._daemon: _Daemon | None = None
        self.result: dict[str, Any] = {}

    def __enter__(self) -> DaemonProcess:
        if self._program is None:
            raise UnusableError(_MISSING.format(how_to_install("daemon")))
        # Opened before the start, because counting 100,000 files takes longer than the daemon waits for a lock.
        cache = FileStreamProgramCache(self._directory) if self._has_own_layout else None
        self._daemon = _Daemon("lockcache-daemon", self._log, [*self._program, *self._options])
        try:
            self._wait_until_in_force(self._daemon, cache)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        daemon = self._daemon
        if daemon is None:
            return
        died = not daemon.is_alive()
        is_in_time = daemon.end(signal.SIGTERM)[1]
        code = daemon.process.returncode
        # The daemon ends with 0 when it is asked to; a negative code means that a signal had ended it before.
        ended = not died and is_in_time and code >= 0
        events = daemon.events()
        sweeps = [event for event in events if event["event"] == "sweep"]
        self.result = {
            "sweeps": len(sweeps),
            "evicted_entries": sum(sweep["evicted_entries"] for sweep in sweeps),
            "evicted_bytes": sum(sweep["evicted_bytes"] for sweep in sweeps),
            "complaints": [event for event in events if event["event"] in _COMPLAINTS],
            "exit_code": code,
            "ended_when_asked": ended,
        }

    def process(self) -> psutil.Process:
        """The process. Raises :class:`psutil.NoSuchProcess` if it died. Requires: within the ``with`` block."""
        if self._daemon is None:
            raise ValueError("the daemon is not running: use it in its with block")
        return psutil.Process(self._daemon.process.pid)

    def is_alive(self) -> bool:
        """Returns whether the daemon runs, which a zombie does not."""
        return self._daemon is not None and self._daemon.is_alive()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of one kind in its log so far."""
        return [] if self._daemon is None else [event for event in self._daemon.events() if event["event"] == kind]

    def trouble(self) -> str:
        """Returns how the daemon died, or its first complaint; empty if there is none. Requires: after the block."""
        if not self.result["ended_when_asked"]:
            return f"the daemon died, exit code {self.result['exit_code']}"
        complaints = self.result["complaints"]
        return f"the daemon complained: {json.dumps(complaints[0])}" if complaints else ""

    def _wait_until_in_force(self, daemon: _Daemon, cache: FileStreamProgramCache | None) -> None:
        def is_in_force() -> bool:
            return daemon.has_said("start") if cache is None else cache.max_size_bytes == self._max_size_bytes

        wait_until(lambda: is_in_force() or not daemon.is_alive(), _START_SECONDS)
        if not is_in_force():
            raise UnusableError(f"lockcache-daemon did not start: {daemon.last_words()}")


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
        program = command or find_daemon()
        if program is None:
            raise UnusableError(_MISSING.format(how_to_install("daemon")))
        self._command = [*program, "--max-size", f"{max_size_bytes}B", "--json", "--standby", directory]
        self._control = control
        self._count = count
        self._rng = random.Random(f"{seed}/relay")
        self._running: list[_Daemon] = []
        self._lives: list[Life] = []
        self._complaints: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._replace_at_random, name="relay")
        self._made = 0
        #: The number of SIGKILLs.
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
        """Returns the daemons that run now and have logged that they keep the directory. There must never be two."""
        return [daemon.name for daemon in list(self._running) if daemon.has_said("start")]

    def checks(self) -> list[Check]:
        """Returns the verdict, line by line."""
        wrong, took = self.verdict.wrong, sorted(self.verdict.takeovers_ns)
        slowest = f"{took[-1] / 1e9:.2f} s, median {took[len(took) // 2] / 1e9:.2f} s" if took else "none"
        return [
            some("SIGKILLs of daemons", self.kills),
            some("daemons that kept the directory", self.verdict.tenures),
            Check("sweeps by daemons", str(self.verdict.sweeps)),
            Check("slowest takeover", slowest),
            zero("two daemons at once", len(wrong)),
            zero("daemon errors", len(self._complaints)),
        ]

    def findings(self) -> list[dict[str, Any]]:
        """Returns the findings, by which the reason of a failure can be found."""
        return [{"error": text} for text in (*self.verdict.wrong, *self._complaints)]

    def _replace_at_random(self) -> None:
        pause = _SHORTEST_PAUSE_SECONDS
        while not self._stop.wait(pause):
            victim = self._running.pop(self._rng.randrange(len(self._running)))
            # Mostly by SIGKILL. After an orderly end a daemon takes over too, and while the keeper hangs none may.
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
        """Wait until one daemon keeps the directory and another stands by, up to a limit."""

        def is_at_rest() -> bool:
            return bool(self.keeping()) and any(daemon.has_said("standby") for daemon in self._running)

        wait_until(lambda: self._stop.is_set() or is_at_rest(), _REST_SECONDS, every_seconds=0.02)

    def _start(self) -> _Daemon:
        self._made += 1
        log = os.path.join(self._control, f"daemon-{self._made}.log")
        return _Daemon(f"daemon {self._made}", log, [*self._command, "--interval", self._rng.choice(_INTERVALS)])

    def _end(self, daemon: _Daemon, number: int) -> Life:
        ended_ns, is_in_time = daemon.end(number)
        if not is_in_time:
            self._complaints.append(f"{daemon.name} did not end within {_STOP_SECONDS:.0f} s")
        events = daemon.events()
        complaints = [event for event in events if event["event"] in _COMPLAINTS]
        self._complaints += [f"{daemon.name}: {json.dumps(event)}" for event in complaints]
        return Life(daemon.name, events, ended_ns)

    def _wait_for_first(self) -> None:
        """Wait until a daemon keeps the directory, because workers that begin before would find no cap."""
        wait_until(lambda: self.keeping() or not any(each.is_alive() for each in self._running), _FIRST_SECONDS)
        if not self.keeping():
            said = " | ".join(daemon.last_words() for daemon in self._running)
            raise UnusableError(f"no lockcache-daemon started: {said[-500:]}")

    def _end_all(self) -> None:
        for daemon in self._running:
            self._lives.append(self._end(daemon, signal.SIGTERM))
        self._running = []


class _Daemon:
    """One process in a session of its own, and its log."""

    def __init__(self, name: str, log: str, command: Sequence[str]) -> None:
        self.name, self._log = name, log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def send(self, number: int) -> int:
        """Send a signal. Returns the time just before, when it cannot have had any effect."""
        sent_ns = time.monotonic_ns()
        self.process.send_signal(number)
        return sent_ns

    def end(self, number: int) -> tuple[int, bool]:
        """Send a signal and wait for the end. Returns the time of the signal, and whether the process ended in time."""
        sent_ns = self.send(number)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return sent_ns, False
        return sent_ns, True

    def has_said(self, kind: str) -> bool:
        return f'"{kind}"' in self._text()

    def last_words(self) -> str:
        return " | ".join(self._text().splitlines()[-3:]) or "it said nothing"

    def events(self) -> list[dict[str, Any]]:
        """Returns its log. A line that is not JSON (of a traceback) is an error; an unfinished line is left out."""
        return [_event(line) for line in self._text().split("\n")[:-1]]

    def _text(self) -> str:
        with open(self._log, errors="replace") as file:
            return file.read()


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        event = {}
    is_event = isinstance(event, dict) and "event" in event
    return event if is_event else {"event": "error", "message": line.rstrip()}

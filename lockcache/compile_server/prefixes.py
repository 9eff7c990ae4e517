# SPDX-License-Identifier: Apache-2.0
"""Prefixes: what a server knows of each, and the process that holds its headers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from lockcache.compile_server.limits import LOOK_SECONDS, Limits
from lockcache.compile_server.prefix import Mode, Request
from lockcache.compile_server.signs import HungError, Signs

_MESSAGE_BYTES: Final = 65_536


class State(Enum):
    """Where a prefix stands."""

    #: Nobody holds its headers.
    COLD = "cold"
    CREATING = "creating"
    READY = "ready"
    #: It could not be held, and is tried again after a while.
    REFUSED = "refused"
    #: An ordinary compilation gave something else: never again.
    OFF = "off"


@dataclass
class Process:
    """A holder, as the server sees it."""

    pid: int
    pipe: socket.socket
    folder: str
    #: When it has to be ready.
    ready_until: float
    #: Jobs that it has, each with the time by which it has to be over.
    jobs: dict[int, float] = field(default_factory=dict)
    #: Whether it compiles the headers by now. Before, it waits for its first caller, and later for jobs.
    is_compiling: bool = False
    signs: Signs = field(default_factory=Signs)
    looked_at: float = 0.0

    def hangs(self, now: float) -> bool:
        """Returns whether it does not get on. Looks, where the last look was not just now."""
        if now - self.looked_at < LOOK_SECONDS:
            return False
        self.looked_at = now
        try:
            look = self.signs.look if self.is_compiling else self.signs.look_for_a_stop
            look(self.pid)
        except HungError:
            return True
        return False

    def send(self, connection: socket.socket, job: int, until: float, *, is_checked: bool) -> None:
        """Hand a caller's connection over. Raises :class:`OSError`."""
        text = json.dumps({"job": job, "check": is_checked}).encode()
        socket.send_fds(self.pipe, [text], [connection.fileno()])
        self.jobs[job] = until

    def receive(self) -> dict[str, Any] | None:
        """Returns a message; ``None`` once the holder is gone."""
        try:
            text = self.pipe.recv(_MESSAGE_BYTES)
        except OSError:
            return None
        found: dict[str, Any] | None = json.loads(text) if text else None
        return found

    def kill(self) -> None:
        """Kill it. Requires: nobody has waited for it, so that the number is still its own."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.pipe.close()

    def is_reaped(self) -> bool:
        """Returns whether it is gone; never waits for one that the kernel cannot end (a dead server of files)."""
        return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid


@dataclass
class Prefix:
    """One prefix."""

    name: str
    #: Of the last request that was wanted; of prefixes that are only remembered, a name is all that is kept.
    request: Request | None = None
    state: State = State.COLD
    why: str = ""
    #: Requests so far, those that wait now, those that a holder got after its first, and those that were compiled.
    seen: int = 0
    waiting: int = 0
    sent: int = 0
    compiled: int = 0
    checked: int = 0
    used_at: float = 0.0
    #: When it may be tried again.
    again_at: float = 0.0
    create_seconds: float = 0.0
    resident_bytes: int = 0
    process: Process | None = None
    #: The connection of the request for which the headers are compiled.
    maker: socket.socket | None = None

    def wants(self, mode: Mode, now: float) -> bool:
        """Returns whether a request of this prefix is for the server. Counts it."""
        self.seen += 1
        self.used_at = now
        if self.state is State.REFUSED and now >= self.again_at:
            self.state = State.COLD
        if self.state in (State.REFUSED, State.OFF):
            return False
        return mode is Mode.ON or self.seen > 1

    def as_dict(self) -> dict[str, Any]:
        """Returns what people want to know of it."""
        head, options = ("", ()) if self.request is None else (self.request.head, self.request.options)
        includes = [line.split("include", 1)[1].strip() for line in head.splitlines() if "include" in line]
        return {
            "includes": includes[:20],
            "options": list(options[:3]),
            "state": self.state.value,
            "why": self.why,
            "compiled": self.compiled,
            "checked": self.checked,
            "create_seconds": round(self.create_seconds, 3),
            "resident_bytes": self.resident_bytes,
        }


class Prefixes:
    """All prefixes that are remembered, those used last at the end."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: OrderedDict[str, Prefix] = OrderedDict()

    def of(self, request: Request) -> Prefix:
        """Returns the prefix of a request; another one is forgotten if there are too many."""
        name = request.prefix
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Prefix(name)
            while len(self._known) > self._limits.prefixes and self._forget_one():
                pass
        self._known.move_to_end(name)
        return found

    def _forget_one(self) -> bool:
        for name, prefix in self._known.items():
            if prefix.process is None and not prefix.waiting and prefix.state is not State.OFF:
                del self._known[name]
                return True
        return False

    def all(self) -> list[Prefix]:
        """Returns all prefixes."""
        return list(self._known.values())

    def held(self) -> list[tuple[Prefix, Process]]:
        """Returns those with a holder."""
        return [(prefix, prefix.process) for prefix in self._known.values() if prefix.process is not None]

    def idle(self, before: float) -> list[Prefix]:
        """Returns those with a holder that has nothing to do and was not used since ``before``."""
        return [
            prefix
            for prefix, process in self.held()
            if prefix.state is State.READY and not process.jobs and not prefix.waiting and prefix.used_at < before
        ]

    def to_end(self) -> Prefix | None:
        """Returns the prefix whose holder makes room: used least recently, not just now, and without a job."""
        idle = self.idle(time.monotonic() - self._limits.kept_seconds)
        return min(idle, key=lambda prefix: prefix.used_at, default=None)

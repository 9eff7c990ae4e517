# SPDX-License-Identifier: Apache-2.0
"""Asking the server: what a process does that has something to compile, and what people ask.

Keeps the promise that the server is never needed: whatever goes wrong, :func:`ask` returns ``None``. A server that is
not there costs nothing, and one that dies is reported by the kernel. One that is stopped or hangs is noticed: the
process that has a request says which one it is, and :mod:`.signs` can tell one that does nothing from a slow one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lockcache.arguments import warn_once
from lockcache.compile_server import wire
from lockcache.compile_server.limits import LOOK_SECONDS, SILENT_SECONDS, STARTED_SECONDS
from lockcache.compile_server.place import Place, open_place
from lockcache.compile_server.prefix import Mode, Request
from lockcache.compile_server.signs import Signs
from lockcache.compile_server.starting import start
from lockcache.sizes import counted

_log: Final = logging.getLogger("lockcache")

#: After a failure a process does not try again for so long: not each of its compilations loses time.
_REST_SECONDS: Final = 5.0
#: Between two looks for the socket that another process is making, which takes a millisecond. There is no event to wait
#: for: that process holds the lock for the server, which keeps it.
_BETWEEN_LOOKS_SECONDS: Final = 0.002
_STATE_SECONDS: Final = 2.0
#: Between two looks whether the process that compiles gets on: a share of the time that was waited (each look is 50 us
#: of the processor that compiles), and at most so long.
_LOOK_SHARE, _LONGEST_LOOK_SECONDS = 0.25, 0.5

_rests_until = 0.0


class Answer(NamedTuple):
    """What NVRTC left, in a process that has the headers."""

    code: bytes
    #: As NVRTC wrote it, with the NUL at its end.
    log: bytes
    #: The lowered names, in the order of the name expressions.
    lowered: tuple[bytes, ...]
    #: What NVRTC calls its version, ``13.5``.
    release: str

    @property
    def written(self) -> str:
        """The log as cuda.core hands it on: nothing, where it is only the NUL at its end."""
        return self.log.decode(errors="backslashreplace") if len(self.log) > 1 else ""


def ask(
    request: Request, source: bytes, names: tuple[bytes, ...], mode: Mode, evidence: Callable[[], bytes]
) -> Answer | None:
    """Returns what the server compiled; ``None`` where the caller has to compile. Raises nothing.

    ``evidence`` is called where the server does not have the headers yet: it returns the facts by which a change of
    them is seen (:func:`lockcache.headers.encode_facts`), or nothing if they do not suffice.
    """
    global _rests_until
    if time.monotonic() < _rests_until:
        return None
    try:
        with open_place() as place:
            return _Asking(place, request, source, names, evidence).ask(mode)
    except (OSError, ValueError) as error:
        _rests_until = time.monotonic() + _REST_SECONDS
        _log.debug("the compile server is not used: %s", error)
        return None


class _Asking(NamedTuple):
    """One request."""

    place: Place
    request: Request
    source: bytes
    names: tuple[bytes, ...]
    evidence: Callable[[], bytes]

    def ask(self, mode: Mode) -> Answer | None:
        with _connect(self.place) as connection:
            begun = time.monotonic()
            wire.send(connection, {"ask": "compile", "mode": mode.value, **self.request._asdict()})
            said = self._acknowledged(connection, mode, begun)
            if said is None:
                return None
            if said.get("state") != "taken":
                if said.get("off") is True:
                    warn_once(f"the compile server is off for some programs: {said.get('why')}; see lockcache doctor")
                return None
            try:
                return self._compile(connection, said, begun)
            except OSError as error:  # a child that died, a header that changed: of this request, not of the server
                _log.debug("the compile server did not compile: %s", error)
                return None

    def _acknowledged(self, connection: socket.socket, mode: Mode, begun: float) -> dict[str, Any] | None:
        """Returns what the server says first; ``None`` where it is starting, and need not be waited for."""
        signs, poll = Signs(), select.poll()
        poll.register(connection, select.POLLIN)
        while not poll.poll(1000 * LOOK_SECONDS):
            pid, serves = self.place.server()
            # The first program of a prefix is its caller's. The server reads later what was sent, and counts.
            if mode is Mode.AUTO and not serves:
                return None
            if pid:
                signs.look(pid, SILENT_SECONDS)
            elif time.monotonic() - begun >= STARTED_SECONDS:
                raise TimeoutError("a server that is starting does not get on")
        return wire.receive_head(connection, time.monotonic() + LOOK_SECONDS)

    def _compile(self, connection: socket.socket, said: dict[str, Any], begun: float) -> Answer | None:
        until = begun + _seconds(said)
        evidence = self.evidence() if said.get("evidence") is True else b""
        names = json.dumps([os.fsdecode(name) for name in self.names]).encode()
        blobs = names, self.source, evidence
        answer = _receive(connection, until, said, b"".join((wire.pack_head({}, blobs), *blobs)))
        if answer.get("state") != "compiled":
            return None
        answered = wire.receive_blobs(connection, answer, until)
        if len(answered) != 3:
            raise wire.BrokenMessageError("an answer of another kind")
        code, log, lowered_blob = answered
        lowered = json.loads(lowered_blob)
        version = answer.get("release")
        if not code or not isinstance(lowered, list) or len(lowered) != len(self.names):
            raise wire.BrokenMessageError("an answer to something else")
        if not isinstance(version, list) or not all(isinstance(name, str) for name in lowered):
            raise wire.BrokenMessageError("an answer of another kind")
        release = ".".join(map(str, version))
        return Answer(code, log, tuple(os.fsencode(name) for name in lowered), release)


def _receive(connection: socket.socket, until: float, said: dict[str, Any], message: bytes = b"") -> dict[str, Any]:
    """Returns the answer to ``message``, which may be longer than what the kernel keeps of it until it is read.

    ``said``: by whom the request was taken. Raises OSError, also where the process that has the request by then hangs.
    """
    begun, poll, unsent, signs = time.monotonic(), select.poll(), memoryview(message), Signs()
    poll.register(connection, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
    while True:
        share = 0.0 if signs.is_doubtful else (time.monotonic() - begun) * _LOOK_SHARE
        pause = max(LOOK_SECONDS, min(share, _LONGEST_LOOK_SECONDS))
        events = poll.poll(1000 * min(pause, max(0.0, until - time.monotonic())))
        if events and events[0][1] == select.POLLOUT and time.monotonic() < until:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[connection.send(unsent) :]
            if not unsent:
                poll.modify(connection, select.POLLIN)
        elif events and events[0][1] != select.POLLOUT:
            head = wire.receive_head(connection, until)
            if head.get("state") != "compiling":
                return head
            said = head
        elif time.monotonic() >= until:
            raise TimeoutError("no answer in time")
        else:
            signs.look(_pid(said))


def _pid(said: dict[str, Any]) -> int:
    pid = said.get("pid")
    return pid if type(pid) is int and pid > 0 else 0


def _seconds(said: dict[str, Any]) -> float:
    seconds = said.get("seconds")
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= 3600:
        raise wire.BrokenMessageError("a server without patience")
    return float(seconds)


def _connect(place: Place) -> socket.socket:
    """Returns a connection to the server, started if there is none."""
    until = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            return place.connect(LOOK_SECONDS)
        except (FileNotFoundError, ConnectionRefusedError):
            if start(place):
                return place.connect(LOOK_SECONDS)
        if time.monotonic() >= until:
            raise TimeoutError("the lock of a server is held, and no server listens")
        time.sleep(_BETWEEN_LOOKS_SECONDS)


def read_state() -> dict[str, Any] | None:
    """Returns what the server says of itself; ``None`` where none runs. Starts none. Raises nothing."""
    return _say("state")


def describe_state(state: dict[str, Any] | None) -> str:
    """Returns what :func:`read_state` returned in a line."""
    if state is None:
        return "no compile server running"
    ready = sum(prefix["state"] == "ready" for prefix in state["prefixes"])
    words = f"compile server {state['pid']}: ready for {counted(ready, 'set')} of headers"
    words += f", {counted(state['compiled'], 'kernel')} compiled, {state['left']} left to their own processes"
    for count, what in (
        (state["failed"], "failed there and compiled by their own processes"),
        (state["checked"], "compared with ordinary compilations"),
        (state["differences"], "of them different"),
    ):
        words += f", {count} {what}" if count else ""
    return words


def stop() -> bool:
    """Have the server end. Returns whether one did."""
    return _say("stop") is not None


def _say(what: str) -> dict[str, Any] | None:
    try:
        with open_place(makes=False) as place, place.connect(_STATE_SECONDS) as connection:
            wire.send(connection, {"ask": what})
            return wire.receive_head(connection, time.monotonic() + _STATE_SECONDS)
    except (OSError, ValueError):
        return None

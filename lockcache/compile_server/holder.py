# SPDX-License-Identifier: Apache-2.0
"""A holder: the process that has the headers of one prefix, and forks a child for each compilation.

Keeps two promises. A precompiled header is used only while every file that it was made of is what it was: all facts of
:mod:`lockcache.headers`, which the first caller brings along, are looked at after the header was made and before each
compilation. And a child answers only with what an ordinary compilation gives: NVRTC says in the log whether it used the
header, and what was compiled without it is not an answer.

It has one thread, because of the forks. A child has the caller's connection, and nobody else has: when it dies, the
kernel tells the caller at once. Holders end with their server, and children with their holder.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from typing import Any, Final, NamedTuple, NoReturn

from lockcache import headers
from lockcache.compile_server import wire
from lockcache.compile_server.limits import Limits
from lockcache.compile_server.nvrtc import Compiled, Nvrtc, NvrtcError
from lockcache.compile_server.prefix import Request, Target, identity_here
from lockcache.keys import nvrtc_build, variable_names

_FILE: Final = "head.pch"
_MESSAGE_BYTES: Final = 65_536
_PR_SET_PDEATHSIG: Final = 1
#: What a child says on its pipe as it ends; nothing, where it died.
ANSWERED: Final = b"answered"
SAME: Final = b"same"
DIFFERENT: Final = b"different"
NOT_USED: Final = b"not used"


#: The number of the job that a holder begins with.
FIRST_JOB: Final = 0


class _Asked(NamedTuple):
    """The second message of a caller."""

    names: list[bytes]
    source: bytes
    #: The facts about headers, from the caller for whom they are compiled.
    evidence: bytes


class CannotHoldError(Exception):
    """This prefix cannot be compiled once, for this reason."""

    #: For how long; ``None``: as long as the server leaves alone what fails.
    seconds: float | None = None


class _TooNewError(CannotHoldError):
    seconds = 2.0  # after which a header's time vouches for it


class _CallerLeftError(CannotHoldError):
    seconds = 0.0


class Holder:
    """Runs in a process of its own: :meth:`run` ends with it."""

    def __init__(self, request: Request, pipe: socket.socket, folder: str, limits: Limits) -> None:
        self._request = request
        self._pipe = pipe
        self._path = os.path.join(folder, _FILE)
        self._limits = limits
        self._options = [os.fsencode(option) for option in request.options]
        self._name = os.fsencode(request.name)
        self._seconds = 0.0
        #: Children by the pipe on which they end: process, number of the job, time limit.
        self._children: dict[int, tuple[int, int, float]] = {}

    def run(self, first: socket.socket) -> NoReturn:
        """Compile the headers, then programs, until the server is gone. ``first``: the connection of the first one."""
        try:
            asked = self._read_first(first)
            with contextlib.suppress(OSError):  # a caller that has left is noticed later
                say_who(first, os.getpid())
            self._tell({"begun": True})
            self._prepare(asked.evidence)
        except (CannotHoldError, NvrtcError, OSError, ValueError) as error:
            self._tell({"refused": str(error)[-2000:], "seconds": getattr(error, "seconds", None)})
            os._exit(1)
        self._tell({"ready": self._seconds, "resident": _resident_bytes()})
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            with first:
                self._fork(first, {"job": FIRST_JOB, "check": False}, selector, asked)
            os.chdir("/")  # as after each: see _take
            while True:
                for key, _ in selector.select(self._next_limit()):
                    if key.fileobj is self._pipe:
                        self._take(selector)
                    else:
                        self._reap(key.fd, selector)
                self._kill_overdue()

    def _read_first(self, first: socket.socket) -> _Asked:
        try:
            return self.read(first)
        except TimeoutError:
            raise CannotHoldError("its first program did not say what it has") from None
        except OSError as error:
            raise _CallerLeftError(str(error)) from None

    def _prepare(self, evidence: bytes) -> None:
        request = self._request
        # Like the caller: relative names, and names in the output, are those of its directory and variables.
        self._enter()
        os.environ["PWD"] = request.directories[-1]
        for variable in variable_names():
            os.environ.pop(variable, None)
        os.environ.update(request.variables)
        os.environ["TMPDIR"] = os.path.dirname(self._path)  # NVRTC's own files: gone with this prefix
        self._nvrtc = self._load()
        if not evidence:
            raise _TooNewError("a header was changed just now: a later change could not be seen")
        self._facts = headers.decode_facts(evidence)
        begun = time.monotonic()
        log = self._nvrtc.create_header(os.fsencode(request.head), self._name, self._options, self._path)
        self._seconds = time.monotonic() - begun
        if log.count(b"\n") > 1:
            raise CannotHoldError("its headers give warnings, which would be given once only")
        if not self._is_current():
            raise CannotHoldError("a header changed while it was compiled")

    def _enter(self) -> None:
        """Go to the caller's directory. Raises OSError, also if another directory has its name now."""
        os.chdir(self._request.directories[0])
        if identity_here() != self._request.identity:
            raise FileNotFoundError("the working directory was replaced")

    def _load(self) -> Nvrtc:
        path, build = self._request.library, bytes.fromhex(self._request.build)
        before = nvrtc_build(path)
        nvrtc = Nvrtc(path)
        # Both: the file may be replaced while it is loaded.
        if not before == nvrtc_build(path) == build:
            raise CannotHoldError("NVRTC is another build than the caller's")
        return nvrtc

    def _is_current(self) -> bool:
        """Returns whether the header may be used. The working directory is the caller's afterwards."""
        try:
            self._enter()
        except OSError:
            return False
        return headers.hold(self._facts)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._pipe.send(json.dumps(message).encode())
        except OSError:
            os._exit(0)  # the server is gone

    def _take(self, selector: selectors.BaseSelector) -> None:
        try:
            text, fds, _, _ = socket.recv_fds(self._pipe, _MESSAGE_BYTES, 1)
        except OSError:
            text, fds = b"", []
        if not text:
            os._exit(0)  # the server is gone
        if not fds:
            return
        with socket.socket(fileno=fds[0]) as connection:
            job = json.loads(text)
            if not self._is_current():
                self._tell({"ended": job["job"], "verdict": "failed"})
                self._tell({"refused": "a header changed", "seconds": 0.0})
                os._exit(0)
            self._fork(connection, job, selector)
            os.chdir("/")  # nobody's directory: its file system can be unmounted

    def _fork(
        self,
        connection: socket.socket,
        job: dict[str, Any],
        selector: selectors.BaseSelector,
        asked: _Asked | None = None,
    ) -> None:
        limit = self._limits.child_seconds + 4 * self._seconds
        ours, theirs = os.pipe()
        try:
            holder, pid = os.getpid(), os.fork()
        except OSError:  # no memory, no processes: the caller compiles itself
            os.close(ours)
            os.close(theirs)
            self._tell({"ended": job["job"], "verdict": "failed"})
            return
        if pid == 0:
            end_with(holder)
            os.close(ours)
            _run_child(self, connection, theirs, limit, asked, is_checked=bool(job["check"]))
        os.close(theirs)
        self._children[ours] = pid, job["job"], time.monotonic() + limit
        selector.register(ours, selectors.EVENT_READ)

    def _reap(self, fd: int, selector: selectors.BaseSelector) -> None:
        verdict = os.read(fd, 64)
        pid, job, _ = self._children.pop(fd)
        selector.unregister(fd)
        os.close(fd)
        os.waitpid(pid, 0)
        self._tell({"ended": job, "verdict": verdict.decode() or "failed"})
        if verdict == NOT_USED:
            self._tell({"refused": "NVRTC did not use the precompiled header"})
            os._exit(0)

    def _next_limit(self) -> float | None:
        if not self._children:
            return None
        return max(0.0, min(limit for _, _, limit in self._children.values()) - time.monotonic())

    def _kill_overdue(self) -> None:
        for pid, _, limit in self._children.values():
            if time.monotonic() >= limit:
                os.kill(pid, signal.SIGKILL)

    def close_all_but(self, *kept: int) -> None:
        """Close in a child what belongs to the holder."""
        for fd in (self._pipe.fileno(), *self._children):
            if fd not in kept:
                os.close(fd)

    def read(self, connection: socket.socket) -> _Asked:
        """Returns what a caller has. Raises :class:`OSError`, of one that does not say so soon as well."""
        return _read(connection, time.monotonic() + self._limits.told_seconds)

    def answer(self, connection: socket.socket, asked: _Asked, *, is_checked: bool) -> bytes:
        """Compile what was asked for, and answer. Returns the verdict."""
        names, source, _ = asked
        target = Target(self._request.target)
        # Forked before anything is compiled here: an ordinary compilation by a process that has done no other.
        check = _Check(self, source, target, names) if is_checked else None
        using = [*self._options, b"--use-pch=" + os.fsencode(self._path)]
        compiled = self._nvrtc.compile(source, self._name, using, target, names)
        if compiled.status:
            # The caller compiles it as well, and has the error of cuda.core with NVRTC's own log.
            wire.send(connection, {"state": "failed"})
            return ANSWERED
        log = _without_note(compiled.log, self._name, os.fsencode(self._path))
        if log is None:
            return NOT_USED
        found = compiled._replace(log=log)
        answer = {"state": "compiled", "release": self._nvrtc.version()}
        lowered = json.dumps([os.fsdecode(name) for name in found.lowered]).encode()
        wire.send(connection, answer, found.code, found.log, lowered)
        connection.close()
        return ANSWERED if check is None else check.compare(digest(found))

    def compile_plainly(self, source: bytes, target: Target, names: list[bytes]) -> Compiled:
        """Compile without a precompiled header."""
        return self._nvrtc.compile(source, self._name, self._options, target, names)


class _Check:
    """An ordinary compilation of the same source, in a process that waits until the caller has the answer."""

    def __init__(self, holder: Holder, source: bytes, target: Target, names: list[bytes]) -> None:
        self._wake, woken = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child, self._pid = os.getpid(), os.fork()
        if self._pid:
            woken.close()
            return
        end_with(child)
        self._wake.close()
        expected = woken.recv(1024)
        verdict = 2
        with contextlib.suppress(Exception):
            if expected:
                verdict = int(digest(holder.compile_plainly(source, target, names)) != expected)
        os._exit(verdict)

    def compare(self, expected: bytes) -> bytes:
        """Returns whether an ordinary compilation gives the same."""
        self._wake.sendall(expected)
        _, status = os.waitpid(self._pid, 0)
        return {0: SAME, 1: DIFFERENT}.get(os.waitstatus_to_exitcode(status), ANSWERED)


def digest(compiled: Compiled) -> bytes:
    """Returns a digest of all that a caller gets."""
    return hashlib.sha256(repr(tuple(compiled)).encode(), usedforsecurity=False).digest()


def _read(connection: socket.socket, until: float) -> _Asked:
    blobs = wire.receive_blobs(connection, wire.receive_head(connection, until), until)
    if len(blobs) != 3:
        raise wire.BrokenMessageError("a request of another kind")
    names, source, evidence = blobs
    return _Asked([os.fsencode(name) for name in json.loads(names)], source, evidence)


def say_who(connection: socket.socket, pid: int) -> None:
    """Tell a caller which process it waits for from now on, so that it sees if that hangs."""
    wire.send(connection, {"state": "compiling", "pid": pid})


def _run_child(
    holder: Holder, connection: socket.socket, pipe: int, limit: float, asked: _Asked | None, *, is_checked: bool
) -> NoReturn:
    """Answer one request and end. Whatever goes wrong, the connection ends with this process."""
    signal.alarm(int(limit) + 2)  # if the holder is gone by then
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    holder.close_all_but(pipe, connection.fileno())
    try:
        say_who(connection, os.getpid())
        verdict = holder.answer(connection, asked or holder.read(connection), is_checked=is_checked)
        os.write(pipe, verdict)
    except (NvrtcError, OSError, ValueError, MemoryError) as error:
        sys.stderr.write(f"lockcache compile server: {error}\n")
    os._exit(0)


def end_with(parent: int) -> None:
    """Have the kernel kill this process, even if it is stopped, once ``parent`` has ended, which forked it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it had ended by then
        os._exit(1)


def _without_note(log: bytes, name: bytes, path: bytes) -> bytes | None:
    """Returns the log of an ordinary compilation; ``None`` where this was none with the header.

    NVRTC says in the first line that it used the header, behind what it says of options, which ends no line. Nothing
    else in there may be about one.
    """
    before, note, rest = log.partition(b'"%s": using precompiled header file "%s"\n' % (name, path))
    is_used = note and b"\n" not in before
    return before + rest if is_used and b"precompiled header" not in before + rest else None


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

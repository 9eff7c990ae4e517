# SPDX-License-Identifier: Apache-2.0
"""The server: reads what is asked, and hands each request to the holder of its prefix, or back to its caller.

Has one thread, and waits for nothing but its selector: a caller that sends nothing, a holder that hangs and a prefix
that takes long keep nobody else waiting. It never sees a source, nor a result: a holder's child has the caller's
connection.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shutil
import signal
import socket
import time
from collections import deque
from typing import Any, Final, NamedTuple, NoReturn

from lockcache.compile_server import wire
from lockcache.compile_server.holder import DIFFERENT, FIRST_JOB, SAME, Holder, end_with, say_who
from lockcache.compile_server.limits import LOOK_SECONDS, Limits
from lockcache.compile_server.place import peer_uid
from lockcache.compile_server.prefix import Mode, Request
from lockcache.compile_server.prefixes import Prefix, Prefixes, Process, State

_BETWEEN_ROUNDS_SECONDS: Final = 1.0
#: The same while somebody waits: who runs so often is seen to work, and looks whether a holder does.
_AWAITED_SECONDS: Final = LOOK_SECONDS / 2
#: Between a child's own limit, its holder's, and the server's patience with the holder.
_SLACK_SECONDS: Final = 5.0
_UNREAD_SECONDS: Final = 10.0


class _Waiting(NamedTuple):
    prefix: Prefix
    connection: socket.socket
    until: float


class Server:
    """Serves from a listening socket until it is idle, or asked to stop."""

    def __init__(self, listener: socket.socket, folder: str, limits: Limits) -> None:
        self._listener = listener
        self._folder = folder
        self._limits = limits
        self._prefixes = Prefixes(limits)
        self._selector = selectors.DefaultSelector()
        self._unread: dict[socket.socket, tuple[wire.HeadReader, float]] = {}
        self._queue: deque[_Waiting] = deque()
        self._dying: list[Process] = []
        self._begun = self._used_at = time.monotonic()
        self._jobs = FIRST_JOB
        self._is_stopped = False
        #: Whether nobody is let in until the next round.
        self._is_deaf = False
        #: What people want to know: see :meth:`_state`.
        self._counts = {"compiled": 0, "failed": 0, "left": 0, "differences": 0, "checked": 0}

    def serve(self) -> None:
        """Serve. Returns when there is nothing left to do."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        try:
            while not self._is_stopped and not self._is_idle():
                self._hear_all()
                self._look_after()
                self._dispatch()
        finally:  # of SIGTERM as well
            for prefix, _ in self._prefixes.held():
                self._end_holder(prefix, State.COLD)

    def _hear_all(self) -> None:
        """Wait for what comes next, and see to it."""
        is_calm = not (self._unread or self._queue or self._prefixes.held() or self._dying or self._is_deaf)
        was_deaf = self._is_deaf
        seconds = _AWAITED_SECONDS if self._queue else _BETWEEN_ROUNDS_SECONDS
        for key, _ in self._selector.select(self._limits.idle_seconds if is_calm else seconds):
            key.data(key.fileobj)
        if was_deaf:
            self._is_deaf = False
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _is_idle(self) -> bool:
        is_busy = self._unread or self._queue or self._prefixes.held()
        return not is_busy and time.monotonic() - self._used_at >= self._limits.idle_seconds

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the caller has gone
            return
        except OSError:  # there is no descriptor left: until the next round others are served, and no core is taken
            self._selector.unregister(listener)
            self._is_deaf = True
            return
        if len(self._unread) >= self._limits.unread or peer_uid(connection) != os.geteuid():
            connection.close()
            return
        connection.setblocking(False)
        self._unread[connection] = wire.HeadReader(), time.monotonic() + _UNREAD_SECONDS
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            head = self._unread[connection][0].read(connection)
        except BlockingIOError:
            return
        except OSError:
            self._forget(connection)
            connection.close()
            return
        if head is None:
            return
        self._forget(connection)
        try:
            self._answer(connection, head)
        except (OSError, ValueError):
            connection.close()

    def _forget(self, connection: socket.socket) -> None:
        del self._unread[connection]
        self._selector.unregister(connection)

    def _answer(self, connection: socket.socket, head: dict[str, Any]) -> None:
        """Answer a head at once, or have its request wait. Closes the connection, or hands it over."""
        asked = head.get("ask")
        if asked == "compile":
            self._take(connection, Request.parse(head), Mode(head.get("mode")))
            return
        with connection:
            if asked == "state":
                wire.send(connection, self._state())
            elif asked == "stop":
                self._is_stopped = True
                wire.send(connection, {"state": "stopped"})

    def _take(self, connection: socket.socket, request: Request, mode: Mode) -> None:
        self._used_at = time.monotonic()
        prefix = self._prefixes.of(request)
        is_wanted = prefix.wants(mode, time.monotonic())
        if not is_wanted or len(self._queue) >= self._limits.waiting or not self._can_hold(prefix):
            self._counts["left"] += 1
            with connection:
                wire.send(connection, {"state": "left", "why": prefix.why, "off": prefix.state is State.OFF})
            return
        # The request for which the headers are compiled brings the facts along by which a change of them is seen.
        is_first = prefix.state is State.COLD and not prefix.waiting
        if is_first:
            prefix.maker = connection
        taken = {"state": "taken", "seconds": self._limits.answer_seconds, "evidence": is_first, "pid": os.getpid()}
        wire.send(connection, taken)
        prefix.request = request
        prefix.waiting += 1
        self._queue.append(_Waiting(prefix, connection, time.monotonic() + self._limits.answer_seconds))

    def _can_hold(self, prefix: Prefix) -> bool:
        return (
            prefix.process is not None
            or len(self._prefixes.held()) < self._limits.holders
            or (self._prefixes.to_end() is not None)
        )

    def _running(self) -> int:
        return sum(
            1 if prefix.state is State.CREATING else len(process.jobs) for prefix, process in self._prefixes.held()
        )

    def _dispatch(self) -> None:
        """Hand over what can be compiled now, the oldest first."""
        for _ in range(len(self._queue)):
            waiting = self._queue.popleft()
            if self._go_on_with(waiting):
                waiting.prefix.waiting -= 1
            else:
                self._queue.append(waiting)

    def _go_on_with(self, waiting: _Waiting) -> bool:
        """Returns whether nothing is left to be done for a request but what others do."""
        prefix = waiting.prefix
        # The last: nobody makes the headers any more that it waits for.
        is_over = prefix.state in (State.REFUSED, State.OFF) or time.monotonic() >= waiting.until
        if is_over or (prefix.state is State.COLD and prefix.maker not in (waiting.connection, *self._connections())):
            self._counts["failed"] += 1
            waiting.connection.close()
            return True
        if self._running() >= self._limits.slots:
            return False
        if prefix.state is State.COLD and prefix.maker is waiting.connection:
            self._hold(prefix, waiting.connection)
            return True
        if prefix.state is not State.READY or prefix.process is None:
            return False
        self._compile(waiting, prefix, prefix.process)
        return True

    def _connections(self) -> set[socket.socket]:
        return {waiting.connection for waiting in self._queue}

    def _compile(self, waiting: _Waiting, prefix: Prefix, process: Process) -> None:
        self._jobs += 1
        prefix.used_at = time.monotonic()
        until = time.monotonic() + self._patience(prefix)
        prefix.sent += 1
        is_checked = prefix.sent % self._limits.check_every == 0
        with waiting.connection:
            try:
                with contextlib.suppress(OSError):  # a caller that has left
                    say_who(waiting.connection, process.pid)
                process.send(waiting.connection, self._jobs, until, is_checked=is_checked)
            except OSError:
                self._end_holder(prefix, State.COLD)

    def _patience(self, prefix: Prefix) -> float:
        return self._limits.child_seconds + 4 * prefix.create_seconds + _SLACK_SECONDS

    # ---- holders ----

    def _hold(self, prefix: Prefix, maker: socket.socket) -> None:
        """Start the holder of a prefix, which has its first request, if there is room."""
        request = prefix.request
        if len(self._prefixes.held()) >= self._limits.holders:
            other = self._prefixes.to_end()
            if other is None:  # it was used since this request was taken
                self._counts["failed"] += 1
                maker.close()
                return
            self._end_holder(other, State.COLD)
        with maker:
            try:
                prefix.process = None if request is None else self._fork_holder(request, maker)
            except OSError as error:  # no memory, no processes, no disk
                self._refuse(prefix, str(error))
            if prefix.process is not None:
                with contextlib.suppress(OSError):  # a caller that has left: its holder says so
                    say_who(maker, prefix.process.pid)
        if prefix.process is not None:
            prefix.state = State.CREATING
            self._selector.register(prefix.process.pipe, selectors.EVENT_READ, lambda _: self._hear(prefix))

    def _fork_holder(self, request: Request, maker: socket.socket) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.path.join(self._folder, f"holder-{time.monotonic_ns()}")
        try:
            os.mkdir(folder, 0o700)
            server, pid = os.getpid(), os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            _run_holder(Holder(request, theirs, folder, self._limits), theirs, maker, server)
        theirs.close()
        ready_until = time.monotonic() + self._limits.told_seconds + self._limits.create_seconds
        return Process(pid, ours, folder, ready_until, {FIRST_JOB: math.inf})

    def _hear(self, prefix: Prefix) -> None:
        process = prefix.process
        if process is None:
            return
        message = process.receive()
        if message is None:
            self._count_lost(process)
            if prefix.state is State.CREATING:
                self._refuse(prefix, "its holder died")
            else:
                self._end_holder(prefix, State.COLD)
        elif "begun" in message:
            process.ready_until = time.monotonic() + self._limits.create_seconds
            process.is_compiling = True
        elif "ready" in message:
            process.is_compiling = False
            prefix.create_seconds, prefix.resident_bytes = message["ready"], message["resident"]
            if prefix.resident_bytes > self._limits.resident_bytes:
                self._refuse(prefix, f"its holder has {prefix.resident_bytes >> 20} MiB resident")
            else:
                prefix.state, prefix.used_at = State.READY, time.monotonic()
                process.jobs[FIRST_JOB] = time.monotonic() + self._patience(prefix)
        elif "refused" in message:
            self._count_lost(process)
            self._refuse(prefix, message["refused"], message.get("seconds"))
        else:
            process.jobs.pop(message["ended"], None)
            self._judge(prefix, message["verdict"])

    def _judge(self, prefix: Prefix, verdict: str) -> None:
        is_compiled = verdict not in ("failed", "not used")
        self._counts["compiled" if is_compiled else "failed"] += 1
        prefix.compiled += is_compiled
        if verdict in (SAME.decode(), DIFFERENT.decode()):
            prefix.checked += 1
            self._counts["checked"] += 1
        if verdict == DIFFERENT.decode():
            self._counts["differences"] += 1
            prefix.why = "an ordinary compilation gave something else"
            self._end_holder(prefix, State.OFF)

    def _count_lost(self, process: Process) -> None:
        self._counts["failed"] += len(process.jobs)

    def _refuse(self, prefix: Prefix, why: str, seconds: float | None = None) -> None:
        seconds = self._limits.refused_seconds if seconds is None else seconds
        prefix.why, prefix.again_at = why, time.monotonic() + seconds
        self._end_holder(prefix, State.REFUSED)

    def _end_holder(self, prefix: Prefix, state: State) -> None:
        process, prefix.process, prefix.state = prefix.process, None, state
        if process is None:
            return
        self._selector.unregister(process.pipe)
        process.kill()
        shutil.rmtree(process.folder, ignore_errors=True)
        self._dying.append(process)

    def _look_after(self) -> None:
        """End what takes too long, and what nobody uses."""
        now = time.monotonic()
        self._dying = [process for process in self._dying if not process.is_reaped()]
        for connection in [each for each, (_, until) in self._unread.items() if now >= until]:
            self._forget(connection)
            connection.close()
        for prefix, process in self._prefixes.held():
            if prefix.state is State.CREATING and now >= process.ready_until:
                self._refuse(prefix, "compiling its headers took too long")
            elif process.hangs(now) or any(now >= until for until in process.jobs.values()):
                self._count_lost(process)
                self._refuse(prefix, "its holder hung")
        for prefix in self._prefixes.idle(now - self._limits.idle_seconds):
            self._end_holder(prefix, State.COLD)

    def _state(self) -> dict[str, Any]:
        held = [prefix.as_dict() for prefix in self._prefixes.all()[-50:] if prefix.process or prefix.why]
        return {
            "pid": os.getpid(),
            "seconds": round(time.monotonic() - self._begun, 1),
            "waiting": len(self._queue),
            "prefixes": held,
            **self._counts,
        }


def _run_holder(holder: Holder, pipe: socket.socket, maker: socket.socket, server: int) -> NoReturn:
    """Be a holder, with no descriptor of the server's: a caller has to see its connection end."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with(server)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in (pipe.fileno(), maker.fileno()):
                with contextlib.suppress(OSError):  # the one that listed them
                    os.close(fd)
        holder.run(maker)
    except BaseException:  # noqa: BLE001 - whatever it is, the server's code must not go on in this process
        with contextlib.suppress(OSError):
            pipe.send(b'{"refused": "its holder failed"}')
    finally:
        os._exit(1)

# SPDX-License-Identifier: Apache-2.0
"""The daemon's HTTP server: metrics, health and the status page, in a thread of its own.

Keeps the work safe from the clients: one thread that never touches a directory serves a bounded number of clients at a
time, each for a bounded time and with a bounded request; a client that exceeds a bound is disconnected. The server
understands GET and HEAD and nothing else. It does not use :mod:`http.server`, which bounds neither the time of a
request nor the number of its threads. Answers are made from the board, in memory, at most once a second each, so that a
client that asks without end costs no more than one that asks now and then. Only the path and the ``Accept`` header of a
request are read, and on loopback its ``Host``; nothing of it reaches a disk.

Keeps a place for every client: when all places are taken, the next client gets the place of another one. Of the address
with the most connections, the connection that has been idle longest is closed, before one that is being answered. So no
address keeps the others out; and on loopback, where all users share an address, no user does by holding connections.

Keeps web pages from reading it through a browser: on loopback a request has to name the address, or ``localhost``, as
its host. A page from elsewhere whose host name was made to resolve to this address (DNS rebinding) names its own host.

Not promised: that requests are served while somebody makes connections faster than the server accepts them. Nor
secrecy: a server that is not on loopback shows the directories and their contents to everybody who reaches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from lockcache import __version__
from lockcache.remote import ServerSeen
from lockcache.sizes import json_text
from lockcache_daemon.observe.board import Board, DirectoryView, shown
from lockcache_daemon.observe.metrics import Metrics
from lockcache_daemon.observe.status_page import render_page

# Sized for a Prometheus or two, a load balancer's probes and some people.
_MOST_CLIENTS: Final = 64
_LONGEST_REQUEST_BYTES: Final = 8192
# From the connection to the last byte sent.
_CLIENT_SECONDS: Final = 10.0
# A daemon that ends waits so long for this thread, which has nothing to finish.
_PATIENCE_SECONDS: Final = 1.0

_PLAIN: Final = "text/plain; charset=utf-8"
# The page holds names that others chose. They are escaped; and if they were not, nothing in the page would run or load.
_HEADERS: Final = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "Connection: close\r\n"
)


class WebServer:
    """Serves ``board`` on ``listening``, which it closes, from :meth:`start` to :meth:`close`. Neither raises.

    ``note`` is called with the first unexpected error in the server, from the server's own thread.
    ``names``: other names than its address under which clients may ask.
    """

    def __init__(
        self, listening: socket.socket, board: Board, note: Callable[[str], object], names: tuple[str, ...] = ()
    ) -> None:
        self._note = note
        self._is_reported = False
        self._listening = listening
        self._answers = Answers(board)
        self._hosts = _Hosts(listening, names)
        self._places = _Places()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port on which it listens. Raises :class:`OSError` once it is closed."""
        host, port = self._listening.getsockname()[:2]
        return host, port

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.ident is None:  # never started
            self._loop.close()
            self._listening.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        with contextlib.closing(self._loop), self._listening:
            self._loop.set_exception_handler(self._report_once)
            self._loop.run_until_complete(self._serve())

    def _report_once(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Not asyncio's own handler: that writes a traceback for each error, as often as a client causes one.
        if not self._is_reported:
            self._is_reported = True
            exception = context.get("exception")
            self._note(f"the web server met an error: {context['message']}: {exception!r} (reported once)")

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, sock=self._listening, limit=_LONGEST_REQUEST_BYTES)
        await self._ending.wait()
        server.close()
        clients = asyncio.all_tasks() - {asyncio.current_task()}
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._places.take(writer, (writer.get_extra_info("peername") or ("",))[0])
        try:
            await asyncio.wait_for(self._converse(reader, writer), _CLIENT_SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # gone, too slow, or cancelled because the daemon ends, which asyncio before 3.12 cannot take
        finally:
            self._places.leave(writer)
            # Not close alone: that would wait for a client which does not read.
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            answer, is_head = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
        else:
            self._places.is_answered(writer)
            answer, is_head = self._answer(request)
        writer.write(_head(answer) + (b"" if is_head else answer.body))
        writer.write_eof()
        await writer.drain()
        # Wait until the client closes: closing first, with bytes of the client unread, may discard the answer.
        while await reader.read(_LONGEST_REQUEST_BYTES):
            pass

    def _answer(self, request: bytes) -> tuple[Answer, bool]:
        line, *fields = request.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not target.startswith("/"):
            return _refusal(HTTPStatus.BAD_REQUEST), False
        if method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED), False
        host = _field(fields, "host")
        if not self._hosts.admits(host):
            return _refusal(HTTPStatus.MISDIRECTED_REQUEST, f": {host!r} is not a name of this server"), False
        return self._answers.to(target.partition("?")[0], _field(fields, "accept")), method == "HEAD"


def _field(fields: list[str], wanted: str) -> str:
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == wanted:
            return value.strip()
    return ""


def _refusal(status: HTTPStatus, why: str = "") -> Answer:
    return Answer(status, _PLAIN, f"{status.value} {status.phrase}{why}\n".encode())


class _Places:
    """The clients that have one of :data:`_MOST_CLIENTS` places, with their addresses. A new client always gets one."""

    def __init__(self) -> None:
        # Each in the order in which the clients came. A client moves to the second when its request is here.
        self._idle: dict[asyncio.StreamWriter, str] = {}
        self._answered: dict[asyncio.StreamWriter, str] = {}

    def __len__(self) -> int:
        return len(self._idle) + len(self._answered)

    def take(self, client: asyncio.StreamWriter, address: str) -> None:
        if len(self) >= _MOST_CLIENTS:
            self._make_room()
        self._idle[client] = address

    def is_answered(self, client: asyncio.StreamWriter) -> None:
        """Note that the client's request is here."""
        if client in self._idle:  # else the client was disconnected a moment ago
            self._answered[client] = self._idle.pop(client)

    def leave(self, client: asyncio.StreamWriter) -> None:
        self._idle.pop(client, None)
        self._answered.pop(client, None)

    def _make_room(self) -> None:
        ((most, _),) = Counter([*self._idle.values(), *self._answered.values()]).most_common(1)
        clients = [*self._idle.items(), *self._answered.items()]
        idlest = next(client for client, address in clients if address == most)
        self.leave(idlest)
        idlest.transport.abort()


class _Hosts:
    """The names under which clients may ask: any name, where the address is not loopback."""

    def __init__(self, listening: socket.socket, names: tuple[str, ...]) -> None:
        self._is_loopback = _is_loopback(listening.getsockname()[0])
        self._names = {"localhost", *map(str.lower, names)}

    def admits(self, host: str) -> bool:
        """Returns whether clients may ask for ``host``, with any port. Programs may leave it empty; browsers do not."""
        if not host or not self._is_loopback:
            return True
        bracketed, _, _ = host.partition("]")
        name = bracketed[1:] if host.startswith("[") else host.partition(":")[0]
        return name.lower().rstrip(".") in self._names or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _head(answer: Answer) -> bytes:
    status = answer.status
    allow = "Allow: GET, HEAD\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n{allow}{_HEADERS}\r\n"
    ).encode("latin-1")


_FRESH_SECONDS: Final = 1.0
# Clients can ask for a few formats of /metrics; answers to further ``Accept`` headers are made each time.
_MOST_KEPT: Final = 16


class Answer(NamedTuple):
    """An HTTP answer."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Answers:
    """Makes the answers, and keeps each for a second. For one thread. A request cannot make :meth:`to` raise."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._metrics = Metrics(board)
        self._kept: dict[tuple[str, str], tuple[float, Answer]] = {}
        self._pages: dict[str, Callable[[str], Answer]] = {
            "/": self._page,
            "/metrics": self._scrape,
            "/healthz": self._health,
            "/status.json": self._status,
        }

    def to(self, path: str, accept: str) -> Answer:
        """Returns the answer to GET of ``path``."""
        make = self._pages.get(path)
        if make is None:
            known = ", ".join(self._pages)
            return Answer(HTTPStatus.NOT_FOUND, _PLAIN, f"nothing here; there is: {known}\n".encode())
        now, key = time.monotonic(), (path, accept if path == "/metrics" else "")
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < _FRESH_SECONDS:
            return kept[1]
        answer = make(accept)
        if key in self._kept or len(self._kept) < _MOST_KEPT:
            self._kept[key] = (now, answer)
        return answer

    def _page(self, accept: str) -> Answer:
        return Answer(HTTPStatus.OK, "text/html; charset=utf-8", render_page(self._board).encode())

    def _scrape(self, accept: str) -> Answer:
        body, content_type = self._metrics.negotiated(accept)
        return Answer(HTTPStatus.OK, content_type, body)

    def _health(self, accept: str) -> Answer:
        problems = self._board.problems()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        states = [{"directory": shown(view.root), "state": view.state} for view in self._board.directories]
        body = {"status": "problems" if problems else "ok", "problems": list(map(shown, problems))}
        silent = round(self._board.silent_seconds, 3)
        return Answer(status, _JSON, _encoded({**body, "last_tick_age_seconds": silent, "directories": states}))

    def _status(self, accept: str) -> Answer:
        board = self._board
        about = {"version": __version__, "host": socket.gethostname(), "pid": board.pid, "since": board.started}
        found = {**about, "problems": list(map(shown, board.problems())), "warnings": board.warnings}
        views = [_described(view) for view in board.directories]
        return Answer(HTTPStatus.OK, _JSON, _encoded({**found, "directories": views}))


_JSON: Final = "application/json"


def _encoded(body: dict[str, Any]) -> bytes:
    return json_text(body).encode() + b"\n"


def _described_server(seen: ServerSeen) -> dict[str, Any]:
    counters = seen.counters
    about = {"server": shown(seen.server), "is_resting": seen.is_resting}
    return {**about, **counters._asdict(), "hit_ratio": counters.hit_ratio}


def _described(view: DirectoryView) -> dict[str, Any]:
    """Returns a view in plain types, with names instead of positions."""
    body = {**vars(view), "root": shown(view.root), "state": view.state, "limits": asdict(view.limits)}
    body["problem"] = None if view.problem is None else shown(view.problem)
    body["clients"] = {**view.clients._asdict(), "hit_ratio": view.clients.hit_ratio}
    body["servers"] = [_described_server(server) for server in view.servers]
    for sums in ("namespaces", "architectures"):
        body[sums] = {shown(name): slot._asdict() for name, slot in getattr(view, sums).items()}
    seen = view.standouts
    lists = {"largest": seen.largest, "oldest": seen.oldest, "dearest": seen.most_expensive}
    body["standouts"] = {name: [each._asdict() for each in entries] for name, entries in lists.items()}
    body["standouts"]["shards_seen"] = seen.shards_seen
    body["history"] = [sample._asdict() for sample in view.history]
    return body

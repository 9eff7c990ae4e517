"""The daemon's HTTP server: metrics, health and the status page, in a thread of its own.

Keeps the work safe from its clients: they are served by one thread that never touches a directory, a bounded number of
them at a time, each for a bounded time and with a bounded request; who is too slow, too many or too long is let go. It
understands GET and HEAD and nothing else. Not by :mod:`http.server`, which bounds neither the time of a request nor
the number of its threads.

Not promised: secrecy. It binds to loopback unless it is told otherwise, and says what directories are called and what
is in them to whoever reaches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from lockcache_daemon.answers import Answer, Answers
from lockcache_daemon.board import Board

__all__ = ["WebServer"]

# Sized for a Prometheus or two, a load balancer's probes and some people.
_MOST_CLIENTS: Final = 64
_LONGEST_REQUEST_BYTES: Final = 8192
# From the connection to the last byte sent.
_CLIENT_SECONDS: Final = 10.0
# A daemon that ends waits so long for this thread, which is not the one that it needs.
_PATIENCE_SECONDS: Final = 1.0

_PLAIN: Final = "text/plain; charset=utf-8"
# The page holds names that others chose. It is escaped; and were it not, nothing in it would run or load.
_HEADERS: Final = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "Connection: close\r\n"
)


class WebServer:
    """Serves ``board`` on ``listening``, which it closes, from :meth:`start` to :meth:`close`. Neither raises.

    ``note`` is told of the first thing that went wrong in here and should not have, from the server's own thread.
    """

    def __init__(self, listening: socket.socket, board: Board, note: Callable[[str], object]) -> None:
        self._note = note
        self._is_told = False
        self._listening = listening
        self._answers = Answers(board)
        self._clients = 0
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._ending.set)
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_SECONDS)

    def _run(self) -> None:
        with contextlib.closing(self._loop), self._listening:
            self._loop.set_exception_handler(self._tell_once)
            self._loop.run_until_complete(self._serve())

    def _tell_once(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Not asyncio's own handler: that writes a traceback for each, as often as a client likes.
        if not self._is_told:
            self._is_told = True
            self._note(f"the web server met an error: {context['message']}: {context.get('exception')!r} (said once)")

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, sock=self._listening, limit=_LONGEST_REQUEST_BYTES)
        await self._ending.wait()
        server.close()
        clients = asyncio.all_tasks() - {asyncio.current_task()}
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= _MOST_CLIENTS:
                await asyncio.wait_for(self._converse(reader, writer), _CLIENT_SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # gone, or too slow, or the daemon ends: asyncio before 3.12 cannot take cancelled clients
        finally:
            self._clients -= 1
            # Not close: that would wait for a client which does not read.
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            answer, is_head = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
        else:
            answer, is_head = self._answer(request)
        writer.write(_head(answer) + (b"" if is_head else answer.body))
        writer.write_eof()
        await writer.drain()
        # Until the client has it all, and closes: closing first, with bytes of its unread, may take it back from it.
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
        return self._answers.to(target.partition("?")[0], _field(fields, "accept")), method == "HEAD"


def _field(fields: list[str], wanted: str) -> str:
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == wanted:
            return value.strip()
    return ""


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, _PLAIN, f"{status.value} {status.phrase}\n".encode())


def _head(answer: Answer) -> bytes:
    status = answer.status
    allow = "Allow: GET, HEAD\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n{allow}{_HEADERS}\r\n"
    ).encode("latin-1")

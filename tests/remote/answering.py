# SPDX-License-Identifier: Apache-2.0
"""Servers that give every request one answer, in each protocol: real sockets, and words as real servers have them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

__all__ = ["Said", "http_that", "redis_that", "server_that"]


class Said(NamedTuple):
    """An answer over HTTP."""

    status: int
    code: str = ""
    words: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[str], Said | None]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = type(self).answer(self.command)
        if said is None:
            self.close_connection = True
            return
        error = f"<Error><Code>{said.code}</Code><Message>{said.words}</Message></Error>" if said.code else ""
        self.send_response(said.status)
        self.send_header("Content-Length", str(len(error)))
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(error.encode())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def http_that(answer: Callable[[str], Said | None]) -> Iterator[int]:
    """Serve HTTP. ``answer``: of each method; ``None`` closes the connection. Yields the port."""
    handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def redis_that(answer: Callable[[str], bytes | None]) -> Iterator[int]:
    """Serve Redis's protocol. ``answer``: of each command; ``None`` closes the connection. Yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(client: socket.socket) -> None:
            with contextlib.suppress(OSError), client, client.makefile("rb") as received:
                while line := received.readline():
                    words = [received.read(int(received.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                    said = answer(words[0].decode().upper())
                    if said is None:
                        return
                    client.sendall(said)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        thread: Any = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextlib.contextmanager
def server_that(answers: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port on which ``answers`` is called with each connection, in a thread, once something came."""
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.recv(65_536)
            answers(client)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()

# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of a server, which spoils the server's answers: delay, silence, resets, halves, garbage."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Final

__all__ = ["FAULTS", "FaultProxy"]

#: The faults of a proxy, which spoil the server's answers.
FAULTS: Final = ("silence", "slow", "reset", "half", "garbage", "trickle")


def _chunks(source: socket.socket) -> Iterator[bytes]:
    return iter(lambda: source.recv(1 << 20), b"")


class FaultProxy:
    """A proxy in front of a server. ``fault`` names the fault, and may be changed at any time."""

    def __init__(self, port: int, fault: str = "", delay_seconds: float = 0.0) -> None:
        self._server_port = port
        self.fault = fault
        self.delay_seconds = delay_seconds
        #: The number of pieces of requests that came.
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}"
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:  # it was killed, and may be started again
                    client.close()
                    continue
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open += [client, server]
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            for chunk in self._late(source) if is_answer and self.delay_seconds else _chunks(source):
                if not is_answer:
                    self.requests += 1
                    target.sendall(chunk)
                elif not self._answer(chunk, target):
                    break
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _late(self, source: socket.socket) -> Iterator[bytes]:
        """Yields each piece of the input after the delay, which adds latency and takes no bandwidth."""
        pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def receive() -> None:
            with contextlib.suppress(OSError):
                for chunk in _chunks(source):
                    pieces.put((time.monotonic() + self.delay_seconds, chunk))
            pieces.put((0.0, b""))

        threading.Thread(target=receive, daemon=True).start()
        while (piece := pieces.get())[1]:
            time.sleep(max(0.0, piece[0] - time.monotonic()))
            yield piece[1]

    def _answer(self, chunk: bytes, target: socket.socket) -> bool:
        """Pass an answer on, spoilt by the fault if there is one. Returns whether the connection stays."""
        if self.fault == "silence":
            return True
        if self.fault == "slow":
            time.sleep(0.3)
        if self.fault == "garbage":
            chunk = os.urandom(len(chunk))
        if self.fault in ("half", "reset"):
            target.sendall(chunk[: len(chunk) // 2])
            if self.fault == "reset":
                target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                target.close()
            return False
        if self.fault == "trickle":
            for byte in chunk:
                target.sendall(bytes([byte]))
                time.sleep(0.1)
            return True
        target.sendall(chunk)
        return True

    def close(self) -> None:
        """Stop listening, and end all connections."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

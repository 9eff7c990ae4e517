# SPDX-License-Identifier: Apache-2.0
"""The servers of :mod:`lockcache_stress.servers`, for tests, which are skipped where one cannot be had."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import RemoteProgramCache
from lockcache_stress import servers
from lockcache_stress.errors import UnusableError
from lockcache_stress.servers import FAULTS, FaultProxy, free_port

__all__ = ["FAULTS", "KINDS", "FaultProxy", "Nginx", "SeaweedFS", "SlowProxy", "Valkey", "free_port", "valkey"]


class SlowProxy(FaultProxy):
    """A slow link to a good server: so many bytes of requests in a second."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        super().__init__(port)

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        if is_answer:
            super()._pump(source, target, is_answer)
            return
        source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                target.sendall(chunk)
                time.sleep(len(chunk) / self._bytes_per_second)  # the link's rate
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Skipping:
    def __init__(self, *given: Any, **named: Any) -> None:
        try:
            super().__init__(*given, **named)
        except UnusableError as error:
            pytest.skip(str(error))


class Valkey(_Skipping, servers.Valkey):
    """Valkey, or a test that is skipped."""


class Nginx(_Skipping, servers.Nginx):
    """nginx with WebDAV, or a test that is skipped."""


class SeaweedFS(_Skipping, servers.SeaweedFS):
    """SeaweedFS, or a test that is skipped."""


KINDS = {"valkey": Valkey, "s3": SeaweedFS, "http": Nginx}


@contextlib.contextmanager
def valkey(folder: Path, *words: str) -> Iterator[Valkey]:
    server = Valkey(folder, *words)
    try:
        yield server
    finally:
        server.kill()


def store_all(cache: RemoteProgramCache, values: Iterable[tuple[str, bytes]]) -> None:
    """Store each value once the one before has arrived: a flush of many waits for five seconds at most."""
    for key, value in values:
        cache[key] = value
        cache.flush()

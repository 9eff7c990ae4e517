# SPDX-License-Identifier: Apache-2.0
"""HTTP in the layout of build caches: ``/ac/`` and the sha256 of the key, by GET, PUT and DELETE. With urllib3.

Source of the layout: bazel-remote, whose names are the sha256 of their content; its validation of values under ``/ac/``
must be off. Any server that keeps files under names will do, such as nginx with WebDAV. Not promised: leases, for which
HTTP has no common form; so each node compiles once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import urllib3

from lockcache.remote.servers.answers import AbsentError, Answer, RemoteError, in_one_line, meaning_of
from lockcache.remote.servers.calls import read_in_parallel
from lockcache.remote.servers.proxies import proxy_for
from lockcache.remote.servers.transport import (
    LARGEST_VALUE_BYTES,
    LeaseAnswer,
    ValueProgress,
    reason_of,
    received_from,
)
from lockcache.remote.servers.urls import RemoteUrl

__all__ = ["HttpTransport", "connect"]

#: Requests at once, each with a connection of its own.
_AT_ONCE: Final = 64
_PIECE_BYTES: Final = 1 << 20
# The time for a body of any length: a thread for which no one waits any more must not receive for ever.
_LONGEST_BODY_SECONDS: Final = 10.0
_LARGEST_ERROR_BYTES: Final = 65_536

_FOUND: Final = 200


def connect(url: RemoteUrl, timeout_seconds: float) -> HttpTransport:
    """Returns a transport for one server."""
    return HttpTransport(url, timeout_seconds)


class HttpTransport:
    """See :class:`.transport.Transport`."""

    has_leases = False
    denies_missing = False

    def __init__(self, url: RemoteUrl, timeout_seconds: float) -> None:
        parts = urlsplit(url.url)
        host = parts.netloc.rpartition("@")[2]
        # The default prefix is for servers of many uses; here a path is what keeps them apart.
        prefix = "" if url.prefix == "lockcache:" else url.prefix
        self._base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/ac/{prefix}"
        self._headers = {}
        if parts.username is not None:
            password = unquote(parts.password or "")
            self._headers = urllib3.make_headers(basic_auth=f"{unquote(parts.username)}:{password}")
        self._pool = _pool(
            parts.scheme,
            parts.hostname or "",
            maxsize=_AT_ONCE,
            timeout=urllib3.Timeout(timeout_seconds),
            retries=False,
            headers=self._headers,
            # By the name that redis-py has for it. Without it the system's, or those in $SSL_CERT_FILE.
            ca_certs=dict(parse_qsl(parts.query)).get("ssl_ca_certs"),
        )
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._connecting = threading.Lock()
        self._arrived_bytes = 0
        kinds = self._pool.pool_classes_by_scheme.items()
        makers: Any = {name: partial(self._make_pool, kind) for name, kind in kinds}
        self._pool.pool_classes_by_scheme = makers

    def get(self, name: str) -> bytes | None:
        try:
            status, body = self._call("GET", name)
        except AbsentError:
            return None
        return body if status == _FOUND else None

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        return read_in_parallel(names, self.get, _AT_ONCE)

    def put(self, name: str, value: bytes) -> None:
        self._call("PUT", name, value)

    def remove(self, name: str) -> None:
        with contextlib.suppress(AbsentError):
            self._call("DELETE", name)

    def names(self) -> Iterator[str]:
        raise RemoteError("HTTP has no request that lists what a server has", Answer.MISUSED)

    def try_lease(self, name: str, token: str, seconds: float, *, has_waited: bool = False) -> LeaseAnswer:
        return LeaseAnswer.NONE

    def renew(self, name: str, token: str, seconds: float) -> bool:
        return False

    def release(self, name: str, token: str, failed_seconds: float = 0) -> None:
        return

    def probe(self) -> None:
        with contextlib.suppress(AbsentError):
            self._call("GET", "0" * 64)

    def abort(self) -> None:
        # Connections in use too, which the pool does not close: a server may send the head of an answer for ever.
        for each in self._sockets():
            with contextlib.suppress(OSError, AttributeError):  # it closes meanwhile, or only wraps a socket
                each.shutdown(socket.SHUT_RDWR)
        self._pool.clear()

    def received_bytes(self) -> int:
        return received_from(self._sockets())

    def arrived_bytes(self) -> int:
        return self._arrived_bytes

    def _note_arrived(self, size_bytes: int) -> None:
        self._arrived_bytes += size_bytes  # of two threads at once, one may be missed

    def _sockets(self) -> list[socket.socket]:
        with self._connecting:
            connections = list(self._connections)
        # Not of those that are not open yet, or no more.
        return [each for connection in connections if (each := getattr(connection, "sock", None)) is not None]

    def _make_pool(self, kind: Any, *place: Any, **settings: Any) -> Any:
        pool = kind(*place, **settings)

        def connect(**words: Any) -> Any:
            connection = kind.ConnectionCls(**words)
            with self._connecting:
                self._connections.add(connection)
            return connection

        pool.ConnectionCls = connect
        return pool

    def _call(self, method: str, name: str, body: bytes | None = None) -> tuple[int, bytes]:
        with _in_words():
            answer = self._pool.request(method, self._base + name, body=body, preload_content=False, redirect=False)
            try:
                is_found = method == "GET" and answer.status == _FOUND
                most_bytes = LARGEST_VALUE_BYTES if is_found else _LARGEST_ERROR_BYTES
                received = _read(answer, most_bytes, self._note_arrived)
            except BaseException:
                answer.close()  # or what was not received would be taken for the next answer
                raise
            answer.release_conn()
        if answer.status // 100 != 2:
            meaning = meaning_of(method, answer.status)
            if meaning is Answer.ABSENT:
                raise AbsentError
            # Not its body, which is a page for a browser.
            words = in_one_line(f"it answers {method} with {answer.status} {answer.reason or ''}")
            raise RemoteError(words, meaning)
        return answer.status, received


def _pool(scheme: str, host: str, **settings: Any) -> urllib3.PoolManager:
    """Returns the connections to a server, through the proxy that the environment names for it."""
    proxy = proxy_for(scheme, host)
    if proxy is None:
        return urllib3.PoolManager(**settings)
    headers = urllib3.make_headers(proxy_basic_auth=proxy.user) if proxy.user else {}
    return urllib3.ProxyManager(proxy.url, proxy_headers=headers, **settings)


def _read(answer: urllib3.BaseHTTPResponse, most_bytes: int, note: Callable[[int], object]) -> bytes:
    """Returns the body, as it was sent. Raises :class:`RemoteError` for one that is too long or takes too long."""
    until = time.monotonic() + _LONGEST_BODY_SECONDS
    pieces, received, progress = [], 0, ValueProgress(note)
    while piece := answer.read1(_PIECE_BYTES, decode_content=False):
        pieces.append(piece)
        received += len(piece)
        progress.add(piece)
        if received > most_bytes or time.monotonic() > until:
            raise RemoteError(f"its answer is longer than {most_bytes} bytes, or has no end")
    return b"".join(pieces)


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except RemoteError:
        raise
    except Exception as error:  # noqa: BLE001 - a parser that meets garbage raises what it likes
        raise RemoteError(reason_of(error)) from None

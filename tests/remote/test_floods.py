# SPDX-License-Identifier: Apache-2.0
"""Servers that answer without an end, by bytes that keep the client library busy: what a process gives them in all."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockcache import RemoteProgramCache
from lockcache.filestream.entry import KeyRing, Record
from lockcache.remote import call_within
from lockcache.remote.sealing import seal
from lockcache.remote.servers import http_server, object_store, redis_server
from lockcache.remote.servers.transport import VALUE_BEGINNING
from tests.matrix_sampling import all_but
from tests.remote.answering import server_that

_OK = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'
_CHUNKS = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
# How an answer begins, and what is repeated then.
_REDIS_FLOODS = {
    "numbers": (b"*100000000\r\n", b":1\r\n"),
    "nested arrays": (b"", b"*1000000\r\n"),
    "short strings": (b"*100000000\r\n", b"$1\r\na\r\n"),
    "a long value": (b"$67108864\r\n", b"a"),
    "a line without an end": (b"+", b"a"),
    "garbage": (b"", b"garbage\r\n"),
}
_WEB_FLOODS = {
    "short chunks": (_CHUNKS, b"1\r\na\r\n"),
    "long values": (_OK + b"Content-Length: 67108864\r\n\r\n", b"a"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "heads": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a page of an error": (b"HTTP/1.1 500 no\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
}
_URLS = {
    "redis": "redis://127.0.0.1:{}",
    "http": "http://127.0.0.1:{}/k",
    "s3": "s3://b/p?endpoint=http://127.0.0.1:{}&access_key_id=a&secret_access_key=b",
}
_FLOODS = [
    *(("redis", flood) for flood in _REDIS_FLOODS),
    *((scheme, flood) for scheme in ("http", "s3") for flood in _WEB_FLOODS),
]
_KEPT = [("redis", "numbers"), ("redis", "a long value"), ("http", "short chunks"), ("s3", "long values")]

# The processor's time, not the clock's: this machine has more to do.
_PROGRAM = """
import json, sys, time
from lockcache import RemoteProgramCache
cache = RemoteProgramCache(sys.argv[1])
cache._store.link.sender()  # which loads the client
began = time.process_time()
found = [cache.get(f"k{number}") for number in range(20)]
print(json.dumps([time.process_time() - began, cache.waited_seconds, len(found) - found.count(None)]))
"""


def _flooding(head: bytes, piece: bytes) -> AbstractContextManager[int]:
    """A port on which each request is answered by ``head``, and by ``piece`` until the client hangs up."""
    pieces = piece * (1 + (1 << 18) // len(piece))

    def answer(client: socket.socket) -> None:
        client.sendall(head)
        while True:
            client.sendall(pieces)

    return server_that(answer)


@pytest.mark.slow
@pytest.mark.parametrize("case", all_but(_KEPT, _FLOODS), ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_flood_takes_a_second_of_the_processor_and_finds_nothing(case: tuple[str, str]) -> None:
    scheme, flood = case
    head, piece = (_REDIS_FLOODS if scheme == "redis" else _WEB_FLOODS)[flood]
    with _flooding(head, piece) as port:
        program = [sys.executable, "-c", _PROGRAM, _URLS[scheme].format(port)]
        ended = subprocess.run(program, capture_output=True, text=True, check=True, timeout=100)
    ran_seconds, waited_seconds, found = json.loads(ended.stdout)
    assert found == 0
    assert waited_seconds < 1.5
    # Twenty answers of the most that is received of one, 64 MiB, are a second in themselves.
    assert ran_seconds < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("scheme, flood", [("redis", "a long value"), ("http", "short chunks"), ("s3", "long values")])
def test_garbage_after_an_entry_is_waited_for_no_longer_than_silence(scheme: str, flood: str) -> None:
    """Its bytes come as quickly as those of an entry that would be waited for."""
    head, piece = (_REDIS_FLOODS if scheme == "redis" else _WEB_FLOODS)[flood]
    pieces = piece * ((1 << 18) // len(piece))

    def answer(client: socket.socket) -> None:
        client.settimeout(2)  # of a client that has hung up, and whose kernel takes nothing more
        client.sendall(head)
        while True:
            client.sendall(pieces)
            time.sleep(len(pieces) / 20e6)  # the rate

    with server_that(answer) as port, RemoteProgramCache(_URLS[scheme].format(port)) as cache:
        cache._store.link.patience.has_believed = True
        assert cache.get("key") is None
        assert cache.waited_seconds < 1.5


def _received(scheme: str, parts: list[bytes], note: Callable[[int], object]) -> bytes:
    """Returns what a transport makes of an answer that comes in these parts."""
    left = iter([*parts, b""])
    if scheme == "http":
        return http_server._read(cast("Any", SimpleNamespace(read1=lambda *_, **__: next(left))), 100, note)
    if scheme == "s3":
        return object_store._bounded(SimpleNamespace(stream=lambda **_: parts), 100, note)
    bounded = redis_server._BoundedSocket(SimpleNamespace(recv=lambda _: next(left)), note)
    return b"".join(iter(lambda: bounded.recv(1 << 16), b""))


@pytest.mark.parametrize("scheme", ["http", "redis", "s3"])
def test_a_value_is_progress_though_its_first_bytes_come_one_by_one_and_nothing_else_is(scheme: str) -> None:
    """As from a proxy that splits what it hands on, or where a segment ends."""
    value = VALUE_BEGINNING + b"more"
    for parts in ([value[:1], value[1:2], value[2:], b"rest"], [value[:2], value[2:], b"rest"], [value, b"rest"]):
        noted = list[int]()
        assert _received(scheme, parts, noted.append) == value + b"rest"
        assert sum(noted) >= len(value[2:] + b"rest")
    garbage = [b"garbage", VALUE_BEGINNING[:2], b"more"]
    noted.clear()
    assert _received(scheme, garbage, noted.append) == b"".join(garbage)
    assert noted == [], "garbage is not progress"


def test_a_value_begins_as_transports_expect() -> None:
    record = Record(0, 1, 0, b"")
    ring = KeyRing([b"k" * 32])
    assert all(seal("0" * 64, b"", record, keys).startswith(VALUE_BEGINNING) for keys in (None, ring))


def test_a_thread_that_is_kept_busy_is_waited_for_while_it_runs() -> None:
    """Its caller cannot run meanwhile, as while a compiler keeps the interpreter: the two differ."""

    def parse_a_flood() -> float:
        began = time.thread_time()
        while time.thread_time() - began < 0.3:
            pass
        return time.thread_time() - began

    ran_seconds, waited_seconds = call_within(60, parse_a_flood)
    assert waited_seconds >= ran_seconds - 0.01

# SPDX-License-Identifier: Apache-2.0
"""Servers that are written to do harm, and clocks and clients that do it unasked: what of it reaches a program."""

from __future__ import annotations

import importlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache, Turn
from lockcache.filestream.disk import Layout, entry_name
from lockcache.filestream.entry import Record
from lockcache.remote import RemoteError, RemoteStore, backing, call_within, parse_url, seal, take_turn
from lockcache.remote.sending import Sender
from lockcache.remote.servers import calls, redis_server, transport
from lockcache.remote.wait_limits import Patience
from tests.cli.command import run
from tests.remote.answering import server_that
from tests.remote.servers import Valkey

CacheAt = Callable[..., RemoteProgramCache]

_HOUR_NS = 3600 * 10**9


def _plant(server: Valkey, key: bytes, value: bytes, created_ns: int) -> None:
    """Store an entry as a host does whose clock says so."""
    name = entry_name(key)
    server.client.set(f"lockcache:{name}", seal(name, value, Record(len(value), created_ns, 0, b""), None))


def test_a_value_from_a_clock_that_is_ahead_does_not_come_back_over_a_write_that_was_lost(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)
    _plant(server, b"k", b"older", time.time_ns() + _HOUR_NS)
    server.client.config_set("maxmemory", 1)
    try:
        with FileStreamProgramCache(tmp_path) as cache:
            cache["k"] = b"newer"
    finally:
        server.client.config_set("maxmemory", 0)
    os.unlink(Layout(str(tmp_path)).entry(entry_name(b"k")))
    with FileStreamProgramCache(tmp_path) as cache:
        assert cache.get("k") is None
        cache["k"] = b"newest"
    os.unlink(Layout(str(tmp_path)).entry(entry_name(b"k")))
    with FileStreamProgramCache(tmp_path) as cache:
        assert cache.get("k") == b"newest", "it was stored there"


@pytest.mark.parametrize("created_ns", [time.time_ns() + _HOUR_NS, 2**63 - 1], ids=["in an hour", "never"])
def test_a_write_is_later_than_what_it_replaces_whatever_the_clocks_say(
    created_ns: int, server: Valkey, cache_at: CacheAt
) -> None:
    _plant(server, b"k", b"older", created_ns)
    cache = cache_at(server.url)
    assert cache["k"] == b"older"
    cache["k"] = b"newer"
    cache.flush()
    assert cache["k"] == b"newer"


def test_leases_that_never_end_are_waited_for_less_and_less(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url, lease_timeout_seconds=1)
    for number in range(12):
        server.client.set(f"lockcache:lease:{entry_name(b'k%d' % number)}", "of an attacker")
    for number in range(12):
        turn = cache.begin(f"k{number}")
        assert isinstance(turn, Turn)
        turn.give_up()
    assert cache._store.link.patience.waits_share < 0.01
    cache["found"] = b"v"
    cache.flush()
    other = cache_at(server.url)
    name = entry_name(b"found")
    server.client.set(f"lockcache:lease:{name}", "of another host")
    store = other._store
    assert store.link.patience.waits_share < 0.01
    assert isinstance(take_turn(store, name), tuple)
    assert store.link.patience.waits_share == 1.0, "they are waited for again once one of them ended well"


def test_what_a_server_refuses_does_not_lose_the_rest_at_the_end(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    cache["connected"] = b"v"
    cache.flush()
    is_flushing, refused = threading.Event(), threading.Event()
    sender = cache._store.link.sender()
    sender.send(cache._store.link, is_flushing.wait, lambda: None)
    sender.send(cache._store.link, lambda: bool(refused.set()), lambda: None)  # not taken
    # Until the flush has seen that: the next one is under way then.
    sender.send(cache._store.link, lambda: not is_flushing.wait(0.2), lambda: None)
    for number in range(20):
        cache[f"k{number}"] = b"v"
    threading.Timer(0.05, is_flushing.set).start()
    cache.flush()
    assert cache.remote_stats().puts == 21
    assert cache.stats().dropped_writes == 0


def test_a_job_that_raises_is_one_that_is_lost() -> None:
    sender, lost, done = Sender(Patience()), threading.Event(), threading.Event()
    owner = RemoteStore(parse_url("redis://127.0.0.1:1")).link

    def raise_it() -> bool:
        raise MemoryError

    sender.send(owner, raise_it, lost.set)
    sender.send(owner, lambda: not done.set(), lambda: None)
    assert sender.flush(seconds=60)
    assert lost.is_set()
    assert done.is_set()


class _Panic(BaseException):
    """An error like those that a library in Rust raises for its own bugs."""


def test_a_panic_of_a_client_is_a_failed_call() -> None:
    def panic() -> None:
        raise _Panic("inside")

    with pytest.raises(RemoteError, match="_Panic: inside"):
        call_within(3600, panic)
    with pytest.raises(_Panic):
        calls.read_in_parallel(["one"], lambda name: panic(), 2)  # type: ignore[func-returns-value]


def _await_free() -> None:
    """Wait until each thread that was left behind makes another call."""
    for worker in list(calls._workers._left_behind):
        assert worker.make(int).get(timeout=60)[0] == 0
        calls._workers._idle.remove(worker)  # where it is twice now: nobody took it for this call


def test_calls_that_hung_and_ended_are_not_left_behind() -> None:
    is_over = threading.Event()
    for _ in range(16):
        with pytest.raises(RemoteError, match="no answer"):
            call_within(0.01, is_over.wait)
    with pytest.raises(RemoteError, match="still hang"):
        call_within(60, int)
    is_over.set()
    _await_free()
    assert call_within(60, int)[0] == 0


@pytest.mark.parametrize("error", [OSError("too many open files"), AttributeError("half installed"), MemoryError()])
def test_a_client_that_cannot_be_loaded_is_aserver_that_does_not_answer(
    error: Exception, cache_at: CacheAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(transport, "importlib", SimpleNamespace(import_module=fail, util=importlib.util))
    cache = cache_at("redis://127.0.0.1:1")
    assert cache.get("k") is None
    cache["k"] = b"v"
    cache.flush()
    assert cache.remote_stats().lost_puts == 1


def test_a_setting_at_which_the_client_panics_is_aserver_that_does_not_answer(cache_at: CacheAt) -> None:
    pytest.importorskip("obstore")
    cache = cache_at("az://kernels/place?account_name=somebody&allow_http=true")
    assert cache.get("k") is None
    cache["k"] = b"v"
    cache.flush()
    assert cache.remote_stats().errors > 0


@pytest.mark.parametrize("piece", [b"HTTP/1.1 100 Continue\r\n\r\n", b"a"])
def test_an_http_answer_whose_head_has_no_end_is_ended_here(piece: bytes, cache_at: CacheAt) -> None:
    is_over = threading.Event()

    def answer(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 100 Continue\r\nA: ")
        if len(piece) > 1:
            client.sendall(b"\r\n\r\n")
        while not is_over.wait(0.01):
            client.sendall(piece)

    with server_that(answer) as port:
        try:
            cache = cache_at(f"http://127.0.0.1:{port}")
            assert cache.get("k") is None
            assert calls._workers._left_behind
            _await_free()
        finally:
            is_over.set()


@pytest.mark.slow
def test_a_call_that_the_failure_of_another_ends_is_not_a_second_failure(caplog: pytest.LogCaptureFixture) -> None:
    first, has_come, is_over = threading.Lock(), threading.Event(), threading.Event()

    def answer(client: socket.socket) -> None:
        if first.acquire(blocking=False):
            has_come.set()
            is_over.wait()
        else:
            client.sendall(b"garbage\r\n\r\n")

    with server_that(answer) as port:
        store = RemoteStore(parse_url(f"http://127.0.0.1:{port}/kernels"))
        waiting = threading.Thread(target=store.link.tell, args=(lambda transport: transport.probe(),))
        waiting.start()
        assert has_come.wait(30)
        assert not store.link.tell(lambda transport: transport.probe())
        waiting.join()
        is_over.set()
        assert store.counts.errors == 2
        assert store.link.breaker._failures == 1, "and only the third opens it"
        assert "programs go on without it" not in caplog.text
        store.close()


def test_no_command_shows_a_secret_among_the_settings_of_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "s3://kernels/place?access_key_id=me&secret_access_key=hidden&endpoint=http://127.0.0.1:1"
    monkeypatch.setenv("LOCKCACHE_REMOTE", url)
    for words in (["doctor", "--json", str(tmp_path)], ["config", str(tmp_path)]):
        ended = run(*words)
        assert ended.stdout
        assert "hidden" not in ended.stdout + ended.stderr


def test_an_answer_without_an_end_is_not_received_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "_LONGEST_ANSWER_BYTES", 1 << 20)

    def flood(client: socket.socket) -> None:
        client.sendall(b"$99999999999\r\n")
        for _ in range(32):  # a client that would receive it all finds that the connection has ended
            client.sendall(bytes(1 << 20))

    with server_that(flood) as port:
        reading = redis_server.connect(parse_url(f"redis://127.0.0.1:{port}"), 60.0)
        with pytest.raises(RemoteError, match="an answer is longer than 1048576 bytes"):
            reading.get("0" * 64)

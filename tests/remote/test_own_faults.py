# SPDX-License-Identifier: Apache-2.0
"""Faults of one process (its password, its client) are its own; its leases outlast a failed call, however many."""

from __future__ import annotations

import ctypes
import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache.filestream.disk import Layout
from lockcache.remote import (
    Answer,
    RemoteError,
    RemoteStore,
    link as link_module,
    parse_url,
    turns,
)
from lockcache.remote.node_state import SharedBreaker
from lockcache.remote.servers import calls
from lockcache.remote.servers.transport import reason_of
from tests.remote.servers import Valkey, valkey

_SECRET = "TOPSECRET"


@pytest.fixture
def breaker(tmp_path: Path) -> Callable[[], SharedBreaker]:
    """Makes what each of several processes of one directory has."""
    (tmp_path / "lockcache").mkdir(mode=0o700)
    layout = Layout(str(tmp_path))
    return lambda: SharedBreaker(layout, str(tmp_path / "lockcache"))


def test_a_wrong_password_takes_the_server_from_nobody_else(
    tmp_path_factory: pytest.TempPathFactory, breaker: Callable[[], SharedBreaker], caplog: pytest.LogCaptureFixture
) -> None:
    with valkey(tmp_path_factory.mktemp("valkey"), "--requirepass", "right") as server:
        wrong, right = (
            RemoteStore(parse_url(f"redis://:{word}@127.0.0.1:{server.port}"), breaker=breaker())
            for word in ("wrong", "right")
        )
        for name in "abcdef":
            assert wrong.load(name * 64) is None
        assert wrong.counts.errors == 1, "it does not ask again at once"
        assert wrong.link.is_given_up()
        assert right.put("a" * 64, b"v")
        assert not right.link.is_given_up()
        assert "this program goes on without it" in caplog.text
        assert "wrong@" not in caplog.text
        wrong.close()
        right.close()


def test_a_process_without_a_client_takes_the_server_from_nobody_else(
    server: Valkey, breaker: Callable[[], SharedBreaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RemoteError("No module named 'redis.backoff'", Answer.MISUSED)

    lacking, other = (RemoteStore(parse_url(server.url), breaker=breaker()) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(link_module, "open_transport", fail)
        for name in "abcdef":
            assert lacking.load(name * 64) is None
    assert lacking.link.is_given_up()
    assert other.put("a" * 64, b"v")
    other.close()


def test_no_error_shows_the_password_of_an_endpoint() -> None:
    """In a process of its own: obstore cannot be in one that was forked from one that used it."""
    url = f"s3://bucket?endpoint=http://user:{_SECRET}@127.0.0.1:9&region=r&access_key_id=k&secret_access_key={_SECRET}"
    program = "import sys; from lockcache import RemoteProgramCache as C; print(C(sys.argv[1]).get('k'))"
    ended = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert ended.stdout == "None\n"
    doctor = [sys.executable, "-m", "lockcache", "doctor", "--json", "--remote", url]
    examined = subprocess.run(doctor, capture_output=True, text=True, check=False)
    assert "Connection refused" in examined.stdout, "the error is one whose words have the endpoint"
    assert _SECRET not in ended.stderr + examined.stdout + examined.stderr


class _Failing:
    """Stands for a client library whose pool changes while it is closed, which cannot be brought about at will."""

    has_leases = False

    def get_many(self, names: object) -> dict[str, bytes]:
        raise RemoteError("it does not answer")

    def arrived_bytes(self) -> int:
        return 0

    def abort(self) -> None:
        raise RuntimeError("Set changed size during iteration")


def test_a_connection_that_cannot_be_closed_is_nothing_to_a_program(server: Valkey) -> None:
    store = RemoteStore(parse_url(server.url))
    store.link.transport = _Failing()  # type: ignore[assignment]
    assert store.load("a" * 64) is None
    store.link.transport = _Failing()  # type: ignore[assignment]
    store.close()


def test_answers_of_many_calls_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MOST_BYTES", 1000)
    asked = []

    def get(name: str) -> bytes:
        asked.append(name)
        return bytes(400)

    with pytest.raises(RemoteError, match="longer than 1000 bytes together"):
        calls.read_in_parallel([str(number) for number in range(10_000)], get, 1)
    assert len(asked) == 3, "and the thread does not go on with the rest, however late the caller runs"
    assert len(calls.read_in_parallel(["a", "b"], get, 2)) == 2


def test_the_leases_of_many_turns_are_renewed_at_once() -> None:
    together = threading.Barrier(32, timeout=60)

    class Server:
        def renew(self, name: str, token: str, seconds: float) -> bool:
            together.wait()  # for 31 others, before it is answered
            return token == f"token of {name}"

    turns._renew({name: f"token of {name}" for name in map(str, range(64))}, Server())  # type: ignore[arg-type]
    assert together.n_waiting == 0


def test_a_process_without_threads_takes_the_server_from_nobody_else(
    server: Valkey, breaker: Callable[[], SharedBreaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [RemoteStore(parse_url(server.url), breaker=breaker()) for _ in range(2)]
    assert stores[0].put("a" * 64, b"v")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        patch.setattr(calls, "_workers", calls._Workers())
        for _ in range(3):
            assert stores[0].load("b" * 64) is None
    assert [store.link.is_given_up() for store in stores] == [True, False]
    for store in stores:
        store.close()


def test_where_a_thread_cannot_be_started_the_others_ask_for_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    start, asked, started, may_answer = threading.Thread.start, [], [], threading.Event()

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    def get(name: str) -> bytes:
        asked.append(name)
        may_answer.wait()
        return b""

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RemoteError, match="can't start"):
        calls.read_in_parallel(map(str, range(9)), get, 4)
    may_answer.set()
    started[0].join()
    assert len(asked) == 1


def test_time_in_which_a_compiler_keeps_the_interpreter_is_not_a_wait_for_the_server(
    server: Valkey, cache_at: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_at(server.url)
    cache["k"] = b"v"
    cache.flush()
    sleep_us = ctypes.PyDLL(None).usleep  # which keeps the interpreter's lock
    transport = cache._store.link.transport
    get = transport.get

    def get_while_another_thread_compiles(name: str) -> bytes | None:
        compiler = threading.Thread(target=sleep_us, args=(600_000,))
        compiler.start()
        compiler.join()
        return get(name)  # type: ignore[no-any-return]

    monkeypatch.setattr(transport, "get", get_while_another_thread_compiles)
    for _ in range(3):
        assert cache.get("k") == b"v"
    assert not cache.is_resting


def test_what_is_known_of_leases_outlasts_a_failed_call_of_an_object_store() -> None:
    program = """
from lockcache.remote import open_transport, parse_url
url = parse_url("s3://bucket?region=r&access_key_id=k&secret_access_key=s&endpoint=http://127.0.0.1:9")
before = open_transport(url, 1.0)
before._held["token"] = "state"
before._watched["place"] = "state", 1.0
after = open_transport(url, 1.0)
print(after is not before, after._held, after._watched)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "True {'token': 'state'} {'place': ('state', 1.0)}\n"


def test_of_errors_that_are_each_others_cause_a_reason_is_found() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert reason_of(first) == "ValueError: first"
    hidden = ValueError("of its own")
    hidden.__context__, hidden.__suppress_context__ = OSError(errno.EIO, "unrelated"), True
    assert reason_of(hidden) == "ValueError: of its own"

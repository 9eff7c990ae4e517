# SPDX-License-Identifier: Apache-2.0
"""Sending to the server: large values, slow links, several threads, and the end of a process."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache
from lockcache.filestream.disk import Layout, entry_name
from lockcache.remote import RemoteStore, link, parse_url, read_servers
from tests.matrix_sampling import all_but
from tests.remote.answering import Said, http_that, redis_that
from tests.remote.servers import KINDS, FaultProxy, SlowProxy, Valkey

_NAME = entry_name(b"k")


@pytest.fixture
def slow_to() -> Iterator[Callable[..., SlowProxy]]:
    made: list[SlowProxy] = []

    def make(port: int, bytes_per_second: float) -> SlowProxy:
        made.append(SlowProxy(port, bytes_per_second))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


CHILD = """
import sys
if sys.argv[2] == "early":
    import multiprocessing.util
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
cache["parent"] = b"v"
cache._backing.store.flush()
assert ("multiprocessing.util" in sys.modules) == (sys.argv[2] == "early")
import multiprocessing
def store():
    cache.update((f"child {number}", b"v" * 1000) for number in range(10))
child = multiprocessing.get_context("fork").Process(target=store)
child.start()
child.join()
"""


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_child_of_multiprocessing_sends_what_it_stores_whenever_that_was_imported(
    when: str, server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy_to: Callable[..., FaultProxy]
) -> None:
    # So late that nothing is sent before the child's end unless it waits for that.
    monkeypatch.setenv("LOCKCACHE_REMOTE", proxy_to(server.port, delay_seconds=0.02).url)
    subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), when], check=True)
    assert server.client.dbsize() == 11
    [seen] = read_servers(Layout(str(tmp_path)))
    assert (seen.counters.puts, seen.counters.lost_puts) == (11, 0)


FIRST = """
import sys
from lockcache.remote import RemoteStore, parse_url
store = RemoteStore(parse_url(sys.argv[1]))
store.link.sender()
loaded = set(sys.modules)
assert store.put("ab" * 32, b"v")
store.load("ab" * 32)
print(sorted(set(sys.modules) - loaded))
"""


@pytest.mark.parametrize("kind", ["valkey", "http"])
def test_nothing_is_imported_by_threads_which_a_child_that_is_forked_meanwhile_would_wait_for(
    kind: str, tmp_path: Path
) -> None:
    server: Any = KINDS[kind](tmp_path)
    try:
        assert subprocess.check_output([sys.executable, "-c", FIRST, server.url], text=True) == "[]\n"
    finally:
        server.kill()


def test_threads_that_store_first_together_have_one_sender(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    behind, together, senders = RemoteStore(parse_url(server.url)), threading.Barrier(4), []
    monkeypatch.setattr(behind.link, "_opened", lambda: together.wait(30))
    threads = [threading.Thread(target=lambda: senders.append(behind.link.sender())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, senders))) == 1
    behind.close()


MANY = """
import gc, sys, threading
from lockcache import RemoteProgramCache
url, end = sys.argv[1:]
caches, most, ended = [], 0, 0
def senders():
    return [thread for thread in threading.enumerate() if thread.name == "lockcache sender"]
def are_left_alone(threads):
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)
for number in range(100):
    cache = RemoteProgramCache(url)
    cache[f"{end} {number}"] = b"v"
    caches.append(cache)
    threads = senders()
    most = max(most, len(threads))
    if end == "closed":
        caches.pop().close()
        assert are_left_alone(threads)
del cache, caches
gc.collect()
print(most, are_left_alone(senders()))
"""


@pytest.mark.parametrize("end", ["closed", "collected"])
def test_the_thread_that_sends_ends_with_the_last_cache_of_its_server(end: str, server: Valkey) -> None:
    program = [sys.executable, "-c", MANY, server.url, end]
    assert subprocess.check_output(program, text=True) == "1 True\n"
    assert server.client.dbsize() == 100, "and what was stored has arrived"


@contextlib.contextmanager
def _holding(may_answer: threading.Event, see: Callable[[str], object] = str, seconds: float = 60) -> Iterator[str]:
    """A server that answers no write until it may, or after so long. ``see``: each command. Yields its URL."""

    def answer(command: str) -> bytes:
        see(command)
        if command == "SET":
            may_answer.wait(seconds)
        return b"+OK\r\n" if command == "SET" else b":1\r\n"

    with redis_that(answer) as port:
        yield f"redis://127.0.0.1:{port}"


def test_a_cache_that_is_closed_neither_waits_for_what_another_one_sends_nor_drops_it(
    cache_at: Callable[..., RemoteProgramCache],
) -> None:
    may_answer = threading.Event()
    with _holding(may_answer) as url:
        busy, closed = cache_at(url), cache_at(url)
        for cache in (busy, closed):
            cache._store.link.sender()  # which connects
        busy.update((f"k{number}", b"v") for number in range(20))
        closed.close()
        assert closed.waited_seconds == 0
        assert closed._store.link.transport is None, "its connection is closed"
        may_answer.set()
        busy.flush()
        assert (busy.remote_stats().puts, busy.remote_stats().lost_puts) == (20, 0)


def test_a_cache_that_has_much_to_send_takes_no_others_room(cache_at: Callable[..., RemoteProgramCache]) -> None:
    may_answer = threading.Event()
    with _holding(may_answer) as url:
        busy, other = cache_at(url), cache_at(url)
        for cache in (busy, other):
            cache._store.link.sender()  # which connects
        busy.update((f"k{number}", bytes(2**20)) for number in range(70))
        lost = busy.remote_stats().lost_puts
        assert 5 <= lost <= 7, "more than 64 MiB are not kept"
        other.update((f"k{number}", bytes(2**20)) for number in range(8))
        assert other.remote_stats().lost_puts == 0
        busy["one more"] = bytes(2**20)
        assert busy.remote_stats().lost_puts == lost + 1
        may_answer.set()
        other.flush()
        assert other.remote_stats().puts == 8


def test_a_cache_that_is_flushed_in_vain_drops_its_own_entries_and_counts_each_once(
    cache_at: Callable[..., RemoteProgramCache],
) -> None:
    may_answer, is_sent = threading.Event(), threading.Event()
    with _holding(may_answer) as url:
        flushed, other = cache_at(url), cache_at(url)
        for cache in (flushed, other):
            cache.update((f"k{number}", b"v") for number in range(20))
        flushed.flush()
        assert flushed.remote_stats().lost_puts == 20
        may_answer.set()  # also for the entry that was on its way
        link = other._store.link
        link.sender().send(link, lambda: True, lambda: None, done=is_sent.set)
        assert is_sent.wait(60)
        assert (flushed.remote_stats().puts, flushed.remote_stats().lost_puts) == (0, 20)
        assert (other.remote_stats().puts, other.remote_stats().lost_puts) == (20, 0)


def test_a_removal_comes_before_writes_of_other_entries_and_behind_those_of_its_own(
    cache_at: Callable[..., RemoteProgramCache],
) -> None:
    may_answer, is_held, is_sent = threading.Event(), threading.Event(), threading.Event()
    commands: list[str] = []

    def see(command: str) -> None:
        commands.append(command)
        is_held.set()

    with _holding(may_answer, see) as url:
        cache = cache_at(url)
        cache.update((f"k{number}", b"v") for number in range(5))
        store = cache._store
        assert is_held.wait(60)
        for key in (b"other", b"k4"):
            store.remove(entry_name(key))
        assert cache.is_resting, "a server that does nothing is not waited for again and again"
        may_answer.set()
        store.link.sender().send(store.link, lambda: True, lambda: None, done=is_sent.set)
        assert is_sent.wait(60)
        assert [each for each in commands if each in ("SET", "DEL")] == ["SET", "DEL", *4 * ["SET"], "DEL"]


def test_a_removal_that_waits_behind_writes_which_the_server_answers_costs_no_patience(
    cache_at: Callable[..., RemoteProgramCache],
) -> None:
    may_answer = threading.Event()
    with _holding(may_answer, seconds=0.05) as url:
        cache = cache_at(url)
        cache.update(("k", b"%d" % number) for number in range(100))
        for _ in range(3):
            cache._store.remove(entry_name(b"k"))
        assert cache.waited_seconds == 0
        may_answer.set()


def test_a_process_that_opens_many_directories_keeps_few_descriptors(
    server: Valkey, behind_directories: None, patient: None, tmp_path: Path
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(60):
        with FileStreamProgramCache(tmp_path / str(number)) as cache:
            cache["k"] = b"v%d" % number
    assert len(os.listdir("/proc/self/fd")) < before + 30
    with FileStreamProgramCache(tmp_path / "0") as cache:
        cache["again"] = b"v"
        assert cache["k"] == b"v0"
    with RemoteProgramCache(server.url) as there:
        assert there["again"] == b"v", "and is connected again where it stores something"


def test_counts_of_answers_are_not_lost_to_another_thread(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = RemoteStore(parse_url(server.url))
    clock = iter([1000, 1500])

    def now_ns() -> int:
        behind.counts.answers_ns += 7  # what another thread may do in the midst of anything
        return next(clock)

    monkeypatch.setattr(time, "perf_counter_ns", now_ns)
    behind.load(_NAME)
    assert behind.counts.answers_ns == 500 + 2 * 7
    behind.close()


@pytest.mark.slow
def test_at_its_end_a_process_waits_for_a_large_value_that_is_on_its_way(
    server: Valkey, slow_to: Callable[..., SlowProxy]
) -> None:
    program = "import os, sys; from lockcache import *; RemoteProgramCache(sys.argv[1])['k'] = os.urandom(9_000_000)"
    # For 1.5 s, which is more than a process's patience.
    subprocess.run([sys.executable, "-c", program, slow_to(server.port, 6e6).url], check=True)
    assert server.client.dbsize() == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", all_but(["valkey"], ["valkey", "http"]))
def test_at_its_end_a_process_waits_while_a_slow_link_takes_more(
    kind: str, tmp_path: Path, slow_to: Callable[..., SlowProxy]
) -> None:
    server: Any = KINDS[kind](tmp_path)
    try:
        program = (
            "import os, sys; from lockcache import *; RemoteProgramCache(sys.argv[1])['k'] = os.urandom(2_500_000)"
        )
        # For 2.5 s, which is more than a process's patience and what a faster link would take.
        url = server.url_at(slow_to(server.port, 1e6).port)
        subprocess.run([sys.executable, "-c", program, url], check=True)
        with RemoteProgramCache(server.url) as cache:
            assert len(cache["k"]) == 2_500_000
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", all_but(["http"], ["valkey", "http"]))
def test_a_large_value_takes_longer_than_a_small_one_may(
    kind: str, tmp_path: Path, slow_to: Callable[..., SlowProxy]
) -> None:
    server: Any = KINDS[kind](tmp_path)
    try:
        behind = RemoteStore(parse_url(server.url_at(slow_to(server.port, 4e6).port)))
        value = os.urandom(10_000_000)
        assert behind.put(_NAME, value)  # in 2.5 s; a read of a socket may take 2
        assert behind.put(_NAME[::-1], b"small")
        assert (behind.counts.errors, behind.link.breaker.is_open()) == (0, False)
        behind.close()
    finally:
        server.kill()


def test_a_large_value_is_not_waited_for_for_ever(
    server: Valkey, proxy_to: Callable[..., FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_BACKGROUND_SECONDS", 0.1)
    monkeypatch.setattr(link, "_SLOWEST_BYTES_PER_SECOND", 1e8)
    behind = RemoteStore(parse_url(proxy_to(server.port, "silence").url))
    assert not behind.put(_NAME, bytes(10_000_000))
    assert behind.link.breaker.is_open()
    behind.close()


def test_a_large_value_that_fails_does_not_end_the_calls_of_others(
    server: Valkey, patient: None, cache_at: Callable[..., RemoteProgramCache]
) -> None:
    cache = cache_at(server.url)
    cache["small"] = b"v"
    cache.flush()
    connection = cache._store.link.transport
    server.client.config_set("maxmemory", 1)
    try:
        cache["k"] = bytes(2_000_000)
        cache.flush()
    finally:
        server.client.config_set("maxmemory", 0)
    assert cache.stats().dropped_writes == 1
    assert cache._store.link.transport is connection
    assert cache.get("small") == b"v"


_URLS = {
    "redis": "redis://127.0.0.1:{}",
    "http": "http://127.0.0.1:{}/k",
    "s3": "s3://b/p?endpoint=http://127.0.0.1:{}&access_key_id=a&secret_access_key=b",
}


@pytest.mark.parametrize("scheme", _URLS)
def test_entries_that_are_too_large_to_be_sent_are_one_warning(
    scheme: str, cache_at: Callable[..., RemoteProgramCache], caplog: pytest.LogCaptureFixture
) -> None:
    cache = cache_at(_URLS[scheme].format(1))
    for key in ("first", "second"):
        cache[key] = bytes(64 * 1024 * 1024)
    cache.close()
    [said] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert entry_name(b"first")[:16] in said
    assert "67108864" in said
    assert cache.remote_stats().lost_puts == 2


@pytest.mark.parametrize("scheme", _URLS)
def test_entries_that_are_too_large_for_the_server_are_one_warning(
    scheme: str, cache_at: Callable[..., RemoteProgramCache], caplog: pytest.LogCaptureFixture
) -> None:
    words = "too large for this server"
    if scheme == "redis":
        serving = redis_that(lambda command: f"-OOM {words}\r\n".encode())
    else:
        serving = http_that(lambda method: Said(413, "EntityTooLarge", words))
    with serving as port:
        cache = cache_at(_URLS[scheme].format(port))
        for key in ("first", "second"):
            cache[key] = bytes(2_000_000)
            cache.flush()
        cache.close()
    [said] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert ("413" if scheme == "http" else words) in said
    assert cache.remote_stats().refused_puts == cache.remote_stats().lost_puts == 2
    assert not cache.is_resting, "what is smaller is sent"

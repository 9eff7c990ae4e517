# SPDX-License-Identifier: Apache-2.0
"""A process has at once what it stored on a server, while that waits to be sent; not what was lost or removed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from lockcache import Entry, RemoteProgramCache, Turn
from lockcache.remote.sending import do_nothing
from tests.remote.servers import Nginx, Valkey
from tests.threads import run_threads

CODE = Entry(b"code", {"arch": "sm_90"})


@contextlib.contextmanager
def _nothing_sent(cache: RemoteProgramCache) -> Iterator[None]:
    """Let what is stored in the block wait until its end."""
    link, is_over = cache._store.link, threading.Event()
    link.sender().send(link, is_over.wait, do_nothing)
    try:
        yield
    finally:
        is_over.set()


@pytest.fixture
def cache(server: Valkey, cache_at: Callable[..., RemoteProgramCache]) -> RemoteProgramCache:
    return cache_at(server.url)


def test_a_value_is_there_before_it_is_sent_and_after(cache: RemoteProgramCache) -> None:
    with _nothing_sent(cache):
        cache.put_entry("k", CODE)
        assert cache.get_entry("k") == cache.begin("k") == CODE
        assert cache.get_many(["k", "missing"]) == {b"k": CODE}
        cache["k"] = b"newer"
        assert cache["k"] == b"newer"
        assert cache.remote_stats().bytes_read == 0, "the server was not asked for it"
    cache.flush()
    assert cache["k"] == b"newer"
    assert cache.remote_stats().bytes_read > 0


def test_a_value_that_was_removed_or_lost_is_not_there(cache: RemoteProgramCache) -> None:
    with _nothing_sent(cache):
        cache["removed"], cache["lost"] = b"v", b"v"
        del cache["removed"]
        assert cache.get("removed") is None
        assert cache.get("lost") == b"v"
        cache._store.link.sender().give_up(cache._store.link)
        assert cache.get("lost") is None
        cache["cleared"] = b"v"
        cache.clear()
        assert cache.get("cleared") is None


def test_a_sender_that_loses_a_value_does_not_wait_for_a_thread_that_notes_one(cache: RemoteProgramCache) -> None:
    """That thread may store in a signal handler meanwhile, which waits for the sender."""
    sender, unsent = cache._store.link.sender(), cache._store.unsent
    with _nothing_sent(cache):
        cache["lost"] = b"v"
        losing = threading.Thread(target=sender.give_up, args=(cache._store.link,), daemon=True)
        with unsent._noting:
            losing.start()
            losing.join(10)
            assert not losing.is_alive()
    assert cache.get("lost") is None


def test_an_entry_of_more_metadata_than_a_record_holds_is_a_lost_write(cache: RemoteProgramCache) -> None:
    cache.put_entry("k", Entry(b"code", {"name": "x" * (17 << 20)}))
    assert cache.get_entry("k") is None
    assert cache.remote_stats().lost_puts == 1


def test_a_forked_child_does_not_have_what_its_parent_sends(cache: RemoteProgramCache) -> None:
    with _nothing_sent(cache):
        cache["k"] = b"v"
        pid = os.fork()
        if not pid:
            os._exit(0 if cache.get("k") is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("kind", [Valkey, Nginx], ids=["valkey", "http"])
def test_a_thread_that_waited_for_another_has_what_that_one_stored(
    kind: type, tmp_path_factory: pytest.TempPathFactory, cache_at: Callable[..., RemoteProgramCache]
) -> None:
    """Also of a server that keeps no leases, and before it has the value."""
    server = kind(tmp_path_factory.mktemp("server"))
    try:
        cache = cache_at(server.url)
        found: list[Entry | Turn[Entry]] = []
        with _nothing_sent(cache):
            turn = cache.begin("k")
            assert isinstance(turn, Turn)
            other = threading.Thread(target=lambda: found.append(cache.begin("k")))
            other.start()
            while cache.stats().misses < 2:  # its first look
                assert other.is_alive()
            turn.store(CODE)
            other.join(30)
            assert [isinstance(each, Entry) and each.code for each in found] == [b"code"]
    finally:
        server.kill()


@pytest.mark.parametrize("kind", [Valkey, Nginx], ids=["valkey", "http"])
def test_a_thread_whose_look_was_under_way_when_another_stored_has_what_that_one_stored(
    kind: type,
    tmp_path_factory: pytest.TempPathFactory,
    cache_at: Callable[..., RemoteProgramCache],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = kind(tmp_path_factory.mktemp("server"))
    try:
        cache = cache_at(server.url)
        load = cache._store.load

        def load_while_another_computes(name: str) -> tuple[bytes, bytes] | None:
            loaded = load(name)
            monkeypatch.undo()
            run_threads(lambda: cache.get_or_compute("k", lambda: b"code"), [()])
            return loaded

        with _nothing_sent(cache):
            monkeypatch.setattr(cache._store, "load", load_while_another_computes)
            assert cache.get_or_compute("k", lambda: b"computed again") == b"code"
            assert (cache.stats().hits, cache.stats().misses) == (1, 1)
    finally:
        server.kill()

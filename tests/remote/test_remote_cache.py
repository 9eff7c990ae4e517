# SPDX-License-Identifier: Apache-2.0
"""RemoteProgramCache on a real Valkey server."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import Entry, RemoteProgramCache, Turn
from lockcache.filestream.disk import entry_name
from lockcache.filestream.entry import Record
from lockcache.remote import parse_url, seal
from tests.remote.compute_processes import times_computed
from tests.remote.servers import FaultProxy, Valkey, store_all, valkey

CacheAt = Callable[..., RemoteProgramCache]

_FORK = multiprocessing.get_context("fork")


def test_an_entry_expires_on_the_server(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(f"{server.url}?ttl=100&prefix=mine:")
    cache["k"] = b"v"
    cache.flush()
    assert 0 < int(server.client.ttl(f"mine:{entry_name(b'k')}")) <= 100  # type: ignore[arg-type]


def test_a_unix_socket_is_a_server_too(tmp_path: Path, cache_at: CacheAt) -> None:
    with valkey(tmp_path, "--unixsocket", f"{tmp_path}/s"):
        cache = cache_at(f"unix://{tmp_path}/s")
        cache["k"] = b"v"
        cache.flush()
        assert cache["k"] == b"v"


def test_many_are_one_round_trip(server: Valkey, cache_at: CacheAt, proxy_to: Callable[..., FaultProxy]) -> None:
    stored = cache_at(server.url)
    store_all(stored, ((f"k{number}", b"x" * 16_384) for number in range(300)))
    proxy = proxy_to(server.port)
    cache = cache_at(proxy.url)
    cache.get("to connect")
    proxy.requests = 0
    assert len(cache.get_many(f"k{number}" for number in range(301))) == 300
    assert 2 <= proxy.requests <= 30, "in two batches, of some TCP segments each"


def test_a_server_that_lies_is_never_believed(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    cache["k"], cache["other"] = b"value", b"another value"
    cache.flush()
    place, other = (f"lockcache:{entry_name(key)}" for key in (b"k", b"other"))
    honest, anothers = server.client.get(place), server.client.get(other)
    assert isinstance(honest, bytes)
    assert isinstance(anothers, bytes)
    # Every byte altered, every length, another key's entry, and nothing that is an entry.
    altered = [honest[:at] + bytes([honest[at] ^ 1]) + honest[at + 1 :] for at in range(len(honest))]
    cut = [honest[:length] for length in range(1, len(honest))]
    lies = [*altered, *cut, honest + b"\0", anothers, b"LC", bytes(1000)]
    for lie in lies:
        server.client.set(place, lie)
        assert cache.get("k") is None, lie
    assert cache.stats().corrupt_entries + cache.stats().refused_entries == len(lies)
    server.client.set(place, honest)
    assert cache["k"] == b"value"


def test_what_could_not_be_sent_is_counted_and_the_older_value_is_not_read(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    cache["k"] = b"older"
    cache.flush()
    server.client.config_set("maxmemory", 1)
    try:
        cache["k"] = b"newer"
        cache.flush()
    finally:
        server.client.config_set("maxmemory", 0)
    assert cache.stats().dropped_writes == 1
    assert cache.get("k") is None
    assert cache_at(server.url)["k"] == b"older", "the server holds it still"
    assert not cache.is_resting, "a server that is full can be read"


def test_clear_hides_what_was_stored_before_and_removes_nothing(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    cache["k"] = b"v"
    cache.flush()
    cache.clear()
    assert cache.get("k") is None
    assert cache_at(server.url)["k"] == b"v"
    cache["k"] = b"again"
    cache.flush()
    assert cache["k"] == b"again"


def test_signed_entries_are_believed_with_the_key_alone(server: Valkey, cache_at: CacheAt, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text("5a" * 32)
    cache_at(server.url)["plain"] = b"v"
    signed = cache_at(server.url, signing_key_file=keys)
    signed["signed"] = b"v"
    signed.flush()
    without = cache_at(server.url)
    without["plain"] = b"v"
    without.flush()
    assert cache_at(server.url, signing_key_file=keys)["signed"] == b"v"
    assert signed.get("plain") is None
    assert without.get("signed") is None
    assert signed.stats().refused_entries == without.stats().refused_entries == 1


def test_of_all_processes_one_compiles(server: Valkey, tmp_path: Path) -> None:
    assert times_computed(lambda rank: RemoteProgramCache(server.url), tmp_path, processes=8, keys=4) == [1] * 4


@pytest.mark.slow
def test_a_living_holder_keeps_its_lease_for_longer_than_it_was_given(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    found = cache.begin("k")
    assert isinstance(found, Turn)
    lease = f"lockcache:lease:{entry_name(b'k')}"
    token = server.client.get(lease)
    began = time.monotonic()
    while time.monotonic() < began + 4:
        assert server.client.get(lease) == token
        time.sleep(0.1)
    found.store(b"v")
    cache.flush()
    assert server.client.get(lease) is None
    assert cache_at(server.url)["k"] == b"v"


def test_a_lease_is_given_back_after_the_value_is_there(server: Valkey, cache_at: CacheAt) -> None:
    one, other = cache_at(server.url), cache_at(server.url)
    turn = one.begin("k")
    assert isinstance(turn, Turn)
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(other.begin("k")))
    waiter.start()
    turn.store(b"v")
    waiter.join()
    assert [entry.code for entry in found if isinstance(entry, Entry)] == [b"v"]


def test_a_child_begins_with_its_own_connections_and_nothing_to_send(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    cache["k"] = b"v"
    cache.flush()
    assert cache["k"] == b"v"
    turn = cache.begin("held")

    def child() -> None:
        nonlocal turn
        assert cache["k"] == b"v"
        cache["by child"] = b"w"
        del turn

    process = _FORK.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert cache["by child"] == b"w", "what a child stored is sent at its end"
    assert server.client.exists(f"lockcache:lease:{entry_name(b'held')}"), "it is its parent's turn"


def test_the_url_is_shown_without_its_password(cache_at: CacheAt) -> None:
    cache = cache_at("redis://user:secret@localhost:1/0?prefix=p:")
    assert cache.url == "redis://localhost:1/0"
    assert "secret" not in repr(cache)


@pytest.mark.parametrize(
    "url, words",
    [
        ("ftp://server", "is not a URL that begins with"),
        ("server:6379", "is not a URL that begins with"),
        ("redis://h:port", "is not a URL"),
        ("redis://h?ttl=never", "ttl must be a number of seconds"),
        ("redis://h?ttl=0", "ttl must be a number of seconds"),
        ("redis://h?prefix=%C3%A4", "prefix must be printable ASCII"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RemoteProgramCache(url)
    with pytest.raises(TypeError):
        RemoteProgramCache(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "user:secret@host",
        "redis://:secret/x@host:6379/0",
        "redis://user:secret#x@host",
        "redis://user:secret?x@host/0",
        "redis://user:12345/secret@host:6379/0",
        "redis://user:12345?secret@host",
        "redis://user:12345#secret@host",
        "redis:://user:secret@host",
        "redis:/user:secret@host/",
        "unix://user:1/secret@/run/valkey",
        "http://user:p\u2100secret@host/",
        "ftp://host?password=a@secret",
    ],
)
def test_a_password_that_is_not_quoted_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not a URL|behind its host") as caught:
        RemoteProgramCache(url)
    assert "secret" not in str(caught.value)


def test_an_at_sign_that_is_of_no_password_is_taken() -> None:
    for url in ("s3://bucket/team@work", "unix:///run/valkey@1", "redis://host?password=a@b", "redis://u:p%40@host"):
        assert parse_url(url).shown == url.partition("?")[0].replace("u:p%40@", "")


def test_without_its_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises((ModuleNotFoundError, ValueError), match="redis"):
        RemoteProgramCache("redis://localhost")


def test_a_value_longer_than_what_may_be_read_is_not_sent(server: Valkey, cache_at: CacheAt) -> None:
    cache = cache_at(server.url)
    cache["k"] = bytes(64 * 1024 * 1024)
    assert cache.stats().dropped_writes == 1


def test_an_entry_is_what_its_record_says(server: Valkey) -> None:
    """Values are the store's own records, so other tools of it can read them."""
    value = seal("ab" * 32, b"code", Record(4, 5, 6, b""), None)
    assert value.endswith(b"code")
    assert len(value) == 48


def test_more_than_64_mib_wait_for_nobody(
    cache_at: CacheAt, server: Valkey, proxy_to: Callable[..., FaultProxy]
) -> None:
    cache = cache_at(proxy_to(server.port, "silence").url)
    for number in range(80):
        cache[f"k{number}"] = bytes(1024 * 1024)
    cache.close()
    assert cache.stats().dropped_writes == 80


def test_an_entry_whose_metadata_cannot_be_read_here_is_looked_up_once_and_stays(
    server: Valkey, cache_at: CacheAt
) -> None:
    stored, cache = cache_at(server.url), cache_at(server.url)
    stored._store.offer(entry_name(b"k"), b"code", Record(4, time.time_ns(), 0, b"of a newer version"))
    stored.flush()
    assert cache.get_or_compute("k", lambda: b"computed") == b"computed"
    assert (cache.stats().hits, cache.stats().misses, cache.stats().puts) == (1, 0, 0)
    assert stored.get("k") == b"code"

# SPDX-License-Identifier: Apache-2.0
"""A computation that fails on one host: those who wait on the others compute at once, and none after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, RemoteProgramCache, TieredProgramCache
from lockcache.remote import open_transport, parse_url
from tests.remote.failed_leases import check_failures
from tests.remote.servers import Valkey
from tests.threads import running
from tests.waiting import telling_of_waits

HOSTS, CALLERS_OF_A_HOST = 3, 2
HANG_SECONDS = 60


def _tiered(path: Path, url: str) -> Any:
    return TieredProgramCache(FileStreamProgramCache(path), RemoteProgramCache(url))


def _backed(path: Path, url: str) -> Any:
    return FileStreamProgramCache(path)  # with the server of $LOCKCACHE_REMOTE


def _alone(path: Path, url: str) -> Any:
    return RemoteProgramCache(url)


@pytest.fixture(params=[_tiered, _backed, _alone], ids=["tiered", "backed", "alone"])
def hosts(
    request: pytest.FixtureRequest, server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Any]]:
    if request.param is _backed:
        request.getfixturevalue("behind_directories")
    made = [request.param(tmp_path / str(number), server.url) for number in range(HOSTS)]
    yield made
    for cache in made:
        cache.close()


def test_all_that_wait_on_any_host_compute_at_once_and_what_they_store_is_there(
    hosts: list[Any], server: Valkey
) -> None:
    callers = [cache for cache in hosts for _ in range(CALLERS_OF_A_HOST)]
    begun, waiting, together = threading.Event(), threading.Semaphore(0), threading.Barrier(len(callers))

    def fail() -> bytes:
        begun.set()
        for _ in callers:
            assert waiting.acquire(timeout=HANG_SECONDS)
        raise ZeroDivisionError

    def compute() -> bytes:
        together.wait(HANG_SECONDS)
        return b"code"

    def fail_first() -> None:
        with pytest.raises(ZeroDivisionError):
            hosts[0].get_or_compute("k", fail)

    with telling_of_waits(waiting.release), running(fail_first, [()]):
        assert begun.wait(HANG_SECONDS)
        with running(lambda cache: cache.get_or_compute("k", compute), [(cache,) for cache in callers]) as others:
            assert [each.result() for each in others] == [b"code"] * len(callers)
    for cache in hosts:
        # Of a server alone, an object believes no value that is older than its own, and the last may be.
        assert isinstance(cache, RemoteProgramCache) or cache.get("k") == b"code"
        cache.close()
    assert RemoteProgramCache(server.url).get("k") == b"code"
    assert [cache.stats().dropped_writes for cache in hosts] == [0] * HOSTS


def test_a_failure_is_over_when_a_lease_would_be(server: Valkey, hosts: list[Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        hosts[0].get_or_compute("k", lambda: 1 // 0)
    lease = next(_leases_on(server))
    assert 0 < server.client.pttl(lease) <= 3000
    server.client.delete(lease)
    assert hosts[1].get_or_compute("k", lambda: b"code") == b"code"


def _leases_on(server: Valkey) -> Iterator[bytes]:
    until = time.monotonic() + HANG_SECONDS  # it is sent in the background
    while time.monotonic() < until:
        for lease in server.client.scan_iter("*lease:*"):
            if server.client.get(lease) == b"failed":
                yield lease
        time.sleep(0.01)


def test_a_hit_and_a_plain_miss_take_the_requests_that_they_took(server: Valkey) -> None:
    with RemoteProgramCache(server.url) as cache:
        cache["known"] = b"code"
        cache.flush()
        before = _commands(server)
        cache.get("known")
        assert _commands(server) - before == 1
        turn = cache.begin("new")  # looked for, leased, looked for again
        assert _commands(server) - before == 4
        turn.give_up()


def _commands(server: Valkey) -> int:
    stats = server.client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("get", "getrange", "set", "eval"))


def test_a_failure_in_a_bucket_is_over_when_a_lease_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in for a bucket, with the same conditions on puts. The real servers are in test_protocols.py.
    store = pytest.importorskip("obstore.store").MemoryStore()
    monkeypatch.setattr("lockcache.remote.servers.object_store.from_url", lambda *given, **named: store)
    monkeypatch.setattr("lockcache.remote.servers.object_store._leases", {})
    check_failures(lambda: open_transport(parse_url("s3://bucket"), 2.0))

# SPDX-License-Identifier: Apache-2.0
"""A Valkey server for the tests of one process, emptied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockcache import RemoteProgramCache
from lockcache.remote import backing, wait_limits
from tests.in_memory import run_path, tmp_path
from tests.remote.servers import FaultProxy, Valkey, valkey

__all__ = ["run_path", "tmp_path"]


@pytest.fixture(autouse=True)
def with_all_patience() -> None:
    """Start each test like a process that has not waited for any server yet."""
    wait_limits._patience.clear()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, with_all_patience: None) -> None:
    """Wait for late answers of a busy machine: for tests that ask something else."""
    monkeypatch.setattr(wait_limits, "LIFE_SECONDS", 60.0)
    monkeypatch.setattr(wait_limits, "_LONGEST_CALL_SECONDS", 60.0)


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def server(one_server: Valkey) -> Valkey:
    one_server.client.flushall()
    return one_server


@pytest.fixture
def behind_directories(monkeypatch: pytest.MonkeyPatch, server: Valkey) -> None:
    """Put the server behind directories, and start the test like a process that has opened none."""
    monkeypatch.setattr(backing, "_backings", {})
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)


@pytest.fixture
def cache_at() -> Iterator[Callable[..., RemoteProgramCache]]:
    """Makes caches, and closes them at the end."""
    made: list[RemoteProgramCache] = []

    def make(url: str, **arguments: object) -> RemoteProgramCache:
        made.append(RemoteProgramCache(url, **arguments))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for cache in made:
        cache.close()


@pytest.fixture
def proxy_to() -> Iterator[Callable[..., FaultProxy]]:
    made: list[FaultProxy] = []

    def make(port: int, fault: str = "", delay_seconds: float = 0.0) -> FaultProxy:
        made.append(FaultProxy(port, fault, delay_seconds))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()

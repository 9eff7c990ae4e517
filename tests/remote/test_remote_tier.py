# SPDX-License-Identifier: Apache-2.0
"""A server as the last tier: what the tier in front has counts, and the server is asked for what that lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import (
    FileStreamProgramCache,
    InMemoryProgramCache,
    RemoteProgramCache,
    TieredProgramCache,
    Turn,
)
from tests.remote.servers import Valkey

CacheAt = Callable[..., RemoteProgramCache]


def test_a_server_that_is_gone_or_has_evicted_removes_nothing_here(
    server: Valkey, cache_at: CacheAt, tmp_path: Path
) -> None:
    directory = FileStreamProgramCache(tmp_path)
    cache = TieredProgramCache(InMemoryProgramCache(), directory, cache_at(server.url), recheck_seconds=0)
    cache["k"] = b"v"
    cache.close()
    server.client.flushall()
    assert cache["k"] == directory["k"] == b"v"
    cache.get("another")
    assert cache["k"] == directory["k"] == b"v"


def test_a_server_is_last_or_alone(server: Valkey, cache_at: CacheAt) -> None:
    with pytest.raises(TypeError, match="must be the last tier"):
        TieredProgramCache(cache_at(server.url), InMemoryProgramCache())
    alone = TieredProgramCache(cache_at(server.url))
    alone["k"] = b"v"
    alone.close()
    assert alone["k"] == b"v"


def test_a_directory_that_is_only_read_stands_between_the_one_that_is_written_and_the_server(
    server: Valkey, cache_at: CacheAt, tmp_path: Path
) -> None:
    with FileStreamProgramCache(tmp_path / "golden") as golden:
        golden["old"] = b"golden"
    mine, golden = (
        FileStreamProgramCache(tmp_path / "mine"),
        FileStreamProgramCache(tmp_path / "golden", read_only=True),
    )
    cache = TieredProgramCache(mine, golden, cache_at(server.url))
    assert cache.get_or_compute("old", lambda: pytest.fail("computed")) == mine["old"] == b"golden"
    turn = cache.begin("k")
    assert isinstance(turn, Turn)
    assert len([*(tmp_path / "mine/lockcache/leases").iterdir()]) == 1
    assert turn.store(b"v").code == mine["k"] == b"v"
    cache.close()
    assert cache_at(server.url).get("k") == b"v"
    assert golden.get("k") is None


def test_files_of_an_entry_come_from_the_server_too(server: Valkey, cache_at: CacheAt, tmp_path: Path) -> None:
    one = TieredProgramCache(FileStreamProgramCache(tmp_path / "one"), cache_at(server.url))
    one.put_files("k", {"kernel.cubin": b"code"})
    one.close()
    other = TieredProgramCache(FileStreamProgramCache(tmp_path / "other"), cache_at(server.url))
    path = other.view_files("k")
    assert path is not None
    assert Path(path, "kernel.cubin").read_bytes() == b"code"
    assert other.view_files("missing") is None

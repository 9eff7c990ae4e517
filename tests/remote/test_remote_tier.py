"""A server as the last tier: what the tier in front has counts, and the server is asked for what that lacks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import (
    Entry,
    FileStreamProgramCache,
    InMemoryProgramCache,
    RemoteProgramCache,
    TieredProgramCache,
    Turn,
)
from tests.remote.compute_processes import times_computed
from tests.remote.servers import Valkey

CacheAt = Callable[..., RemoteProgramCache]


def test_what_one_host_stores_another_reads_and_keeps(server: Valkey, cache_at: CacheAt, tmp_path: Path) -> None:
    one = TieredProgramCache(FileStreamProgramCache(tmp_path / "one"), cache_at(server.url))
    one.put_entry("k", Entry(b"v", {"arch": "sm_90"}))
    one.close()
    directory = FileStreamProgramCache(tmp_path / "other")
    other = TieredProgramCache(InMemoryProgramCache(), directory, cache_at(server.url))
    assert other.get_entry("k") == Entry(b"v", {"arch": "sm_90"})
    assert directory.get_entry("k") == Entry(b"v", {"arch": "sm_90"})
    assert other.stats().hits == 1


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


def test_what_is_removed_is_removed_from_all(server: Valkey, cache_at: CacheAt, tmp_path: Path) -> None:
    cache = TieredProgramCache(FileStreamProgramCache(tmp_path), cache_at(server.url))
    cache["k"] = b"v"
    cache.close()
    del cache["k"]
    assert cache.get("k") is None
    cache.close()
    assert cache_at(server.url).get("k") is None
    with pytest.raises(KeyError):
        del cache["k"]
    cache["k"] = b"v"
    cache.clear()
    assert cache.get("k") is None


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


def test_a_turn_that_is_given_up_is_given_up_for_all(server: Valkey, cache_at: CacheAt, tmp_path: Path) -> None:
    cache = TieredProgramCache(FileStreamProgramCache(tmp_path), cache_at(server.url))
    turn = cache.begin("k")
    assert isinstance(turn, Turn)
    turn.give_up()
    cache.close()
    again = cache.begin("k")
    assert isinstance(again, Turn)
    assert again.store(b"v").code == b"v"
    assert cache.wait("k", 1) == cache.get_entry("k")


@pytest.mark.slow
def test_of_all_processes_of_four_hosts_one_compiles(server: Valkey, tmp_path: Path) -> None:
    def opened(rank: int) -> TieredProgramCache:
        return TieredProgramCache(FileStreamProgramCache(tmp_path / f"host{rank % 4}"), RemoteProgramCache(server.url))

    assert times_computed(opened, tmp_path / "counts", processes=16, keys=4) == [1] * 4


def test_it_can_be_pickled(server: Valkey, cache_at: CacheAt, tmp_path: Path) -> None:
    cache = TieredProgramCache(FileStreamProgramCache(tmp_path), cache_at(server.url))
    cache["k"] = b"v"
    copy = pickle.loads(pickle.dumps(cache))
    assert copy["k"] == b"v"
    assert [type(tier) for tier in copy.tiers] == [FileStreamProgramCache, RemoteProgramCache]
    copy.close()

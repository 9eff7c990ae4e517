# SPDX-License-Identifier: Apache-2.0
"""TieredProgramCache over tiers that are only read: they are asked, and decide nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import (
    Entry,
    FileStreamProgramCache,
    InMemoryProgramCache,
    ProgramCacheResource,
    TieredProgramCache,
    Turn,
)


@pytest.fixture
def golden(tmp_path: Path) -> FileStreamProgramCache:
    """Has ``old``, and may only be read."""
    with FileStreamProgramCache(tmp_path / "golden") as cache:
        cache["old"] = b"golden"
    return FileStreamProgramCache(tmp_path / "golden", read_only=True)


def test_the_turn_is_that_of_the_last_tier_that_takes_writes(
    shared: FileStreamProgramCache, golden: FileStreamProgramCache
) -> None:
    """Another process, which has the same directories, learns it from the lease."""
    cache = TieredProgramCache(InMemoryProgramCache(), shared, golden)
    turn = cache.begin("k")
    assert isinstance(turn, Turn)
    assert len(list(Path(shared.path, "lockcache/leases").iterdir())) == 1
    turn.store(b"code")
    assert shared["k"] == b"code"
    assert FileStreamProgramCache(golden.path).get("k") is None


def test_a_read_finds_what_a_tier_that_is_only_read_has_and_fills_those_in_front(
    shared: FileStreamProgramCache, golden: FileStreamProgramCache
) -> None:
    memory = InMemoryProgramCache()
    cache = TieredProgramCache(memory, shared, golden)
    assert cache.get_or_compute("old", lambda: pytest.fail("computed")) == memory["old"] == shared["old"] == b"golden"
    assert cache.wait("old", 0) is not None


def test_what_was_stored_stays_when_it_is_time_to_ask_again(
    shared: FileStreamProgramCache, golden: FileStreamProgramCache, clock: Callable[[float], None]
) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), shared, golden)
    cache["k"], cache["old"] = b"code", b"newer"
    clock(1000)
    assert (cache["k"], cache["old"]) == (b"code", b"newer")
    assert (shared["k"], shared["old"]) == (b"code", b"newer")


def test_what_is_only_read_is_asked_again_for_what_was_stored_over_it_and_evicted(
    shared: FileStreamProgramCache, golden: FileStreamProgramCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache = TieredProgramCache(shared, golden)
    with caplog.at_level(logging.INFO, "lockcache"):
        cache["old"] = b"newer"
    del shared["old"]
    assert cache["old"] == b"golden"
    assert (caplog.messages, golden.stats().dropped_writes) == ([], 0), "nothing was lost"


def test_what_a_tier_that_is_only_read_has_cannot_be_removed(
    shared: FileStreamProgramCache, golden: FileStreamProgramCache
) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), shared, golden)
    cache["k"] = b"code"
    del cache["k"]
    with pytest.raises(KeyError):
        del cache["k"]
    for remove in (lambda: cache.__delitem__("old"), cache.clear):
        assert cache["old"] == shared["old"] == b"golden"
        with pytest.raises(PermissionError, match="only reads"):
            remove()
        assert shared.get("old") == b"golden", "nothing is removed by what is refused"


def test_damage_in_a_tier_that_is_only_read_is_counted(
    shared: FileStreamProgramCache, golden: FileStreamProgramCache
) -> None:
    [file] = [file for file in Path(golden.path, "entries").rglob("*") if file.is_file()]
    file.write_bytes(b"GOLDEN")
    cache = TieredProgramCache(InMemoryProgramCache(), shared, golden)
    assert cache.get_or_compute("old", lambda: b"compiled") == b"compiled"
    assert cache.stats().corrupt_entries == 1


@pytest.mark.parametrize("variable", ["LOCKCACHE_DISABLE", "LOCKCACHE_READONLY"])
def test_where_a_variable_stops_all_writes_every_caller_computes(
    golden: FileStreamProgramCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    FileStreamProgramCache(tmp_path / "mine").close()
    monkeypatch.setenv(variable, "1")
    cache = TieredProgramCache(FileStreamProgramCache(tmp_path / "mine"), golden)
    turns = [cache.begin("k") for _ in range(2)]
    assert [turn.store(b"code").code for turn in turns if isinstance(turn, Turn)] == [b"code"] * 2
    assert cache.get("k") is None


def test_where_no_tier_takes_writes_none_is_the_truth_for_the_others(
    shared: FileStreamProgramCache,
    golden: FileStreamProgramCache,
    clock: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An entry of the first tier alone, as with ``LOCKCACHE_READONLY``, stays readable when it is time to ask again."""
    shared["mine"] = b"code"
    cache = TieredProgramCache(FileStreamProgramCache(shared.path, read_only=True), golden)
    for _ in range(2):
        with caplog.at_level(logging.INFO, "lockcache"):
            assert (cache["mine"], cache["old"]) == (b"code", b"golden")
            assert cache.get_or_compute("old", lambda: pytest.fail("computed")) == b"golden"
        clock(1000)
    assert (caplog.messages, cache.stats().dropped_writes) == ([], 0), "no copy was tried"


class Plain(ProgramCacheResource):
    """A third party's back end, which keeps no metadata."""

    def __init__(self) -> None:
        self.codes: dict[object, bytes] = {}

    def __getitem__(self, key: bytes | str) -> bytes:
        return self.codes[key]

    def __setitem__(self, key: bytes | str, value: object) -> None:
        assert isinstance(value, bytes)
        self.codes[key] = value

    def __delitem__(self, key: bytes | str) -> None:
        del self.codes[key]

    def __len__(self) -> int:
        return len(self.codes)

    def clear(self) -> None:
        self.codes.clear()


def test_a_tier_that_keeps_no_metadata_is_no_obstacle(tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "golden") as writer:
        writer.put_entry("k", Entry(b"code", {"arch": "sm_90"}))
    cache = TieredProgramCache(Plain(), FileStreamProgramCache(tmp_path / "golden", read_only=True))
    assert cache["k"] == b"code"
    assert cache.get_entry("k") == Entry(b"code", {"arch": "sm_90"})

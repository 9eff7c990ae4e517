# SPDX-License-Identifier: Apache-2.0
"""TieredProgramCache: which tier answers, what fills which, which one computes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import (
    CacheStats,
    Entry,
    FileStreamProgramCache,
    InMemoryProgramCache,
    SQLiteProgramCache,
    TieredProgramCache,
)
from tests.threads import run_threads

META = {"kind": "cubin", "symbol_mapping": {"f<int>": "_Z1f"}, "compile_cost_ns": 7}


def test_no_tier_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="tiers must be one cache or more"):
        TieredProgramCache()


@pytest.mark.parametrize("wrong", [{}, None, "path", InMemoryProgramCache])
def test_a_tier_of_another_type_is_a_type_error_that_names_it(wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"tiers\[1\] must be.*{type(wrong).__name__}"):
        TieredProgramCache(InMemoryProgramCache(), wrong)


@pytest.mark.parametrize(
    "wrong, error", [("5", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_a_recheck_time_that_is_none_is_an_error_that_shows_it(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="recheck_seconds"):
        TieredProgramCache(InMemoryProgramCache(), recheck_seconds=wrong)


@pytest.mark.parametrize("read", [lambda c: c["k"], lambda c: c.get("k"), lambda c: c.get_entry("k").code])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_read_fills_the_tiers_above_the_one_that_had_it_with_its_metadata(
    tmp_path: Path, shared: FileStreamProgramCache, read: Callable[[Any], bytes], depth: int
) -> None:
    tiers = [InMemoryProgramCache(), InMemoryProgramCache(), SQLiteProgramCache(tmp_path / "db"), shared]
    tiers[depth].put_entry("k", Entry(b"code", META))
    cache = TieredProgramCache(*tiers)
    assert read(cache) == b"code"
    have = [tier.get_entry("k") for tier in tiers]
    assert have == [Entry(b"code", META) if number <= depth else None for number in range(4)]
    cache.close()


def test_the_first_tier_that_has_it_answers(shared: FileStreamProgramCache) -> None:
    memory = InMemoryProgramCache()
    cache = TieredProgramCache(memory, shared)
    cache["k"] = b"1"
    before = shared.stats().hits
    for _ in range(10):
        assert cache["k"] == b"1"
    assert shared.stats().hits == before


def test_writes_go_to_all_tiers_and_deletes_and_clears_too(shared: FileStreamProgramCache) -> None:
    memory, middle = InMemoryProgramCache(), InMemoryProgramCache()
    cache = TieredProgramCache(memory, middle, shared)
    cache.update({"a": b"1", "b": b"2", "c": b"3"})
    assert [len(tier) for tier in (memory, middle, shared)] == [3, 3, 3]
    del cache["a"]
    assert [tier.get("a") for tier in (memory, middle, shared)] == [None] * 3
    cache.clear()
    assert [len(tier) for tier in (memory, middle, shared)] == [0, 0, 0]


@pytest.mark.parametrize("number", [0, 1])
def test_deleting_what_any_tier_has_is_no_key_error(shared: FileStreamProgramCache, number: int) -> None:
    tiers = InMemoryProgramCache(), shared
    tiers[number]["k"] = b"1"
    cache = TieredProgramCache(*tiers)
    del cache["k"]
    with pytest.raises(KeyError) as error:
        del cache["k"]
    assert error.value.args == ("k",)


def test_stats_count_each_read_once_and_the_rest_as_the_last_tier_does(shared: FileStreamProgramCache) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), InMemoryProgramCache(), shared)
    shared["k"] = b"code"
    cache["k"], cache.get("k"), cache.get("absent")
    cache["new"] = b"12345"
    assert cache.stats() == CacheStats(hits=2, misses=1, puts=2, bytes=9, entries=2)


def test_damage_in_any_tier_is_counted_and_the_next_tier_answers(
    tmp_path: Path, shared: FileStreamProgramCache
) -> None:
    upper = FileStreamProgramCache(tmp_path / "upper")
    cache = TieredProgramCache(upper, shared)
    cache["k"] = b"code"
    [file] = [file for file in (tmp_path / "upper" / "entries").rglob("*") if file.is_file()]
    with open(file, "r+b") as entry:
        entry.write(b"K")
    assert cache["k"] == b"code"
    assert cache.stats().corrupt_entries == 1
    assert upper["k"] == b"code"  # repaired


def test_a_memory_tier_that_cannot_be_pickled_says_so_and_others_are(
    tmp_path: Path, shared: FileStreamProgramCache
) -> None:
    with pytest.raises(TypeError, match="InMemoryProgramCache"):
        pickle.dumps(TieredProgramCache(InMemoryProgramCache(), shared))
    cache = TieredProgramCache(SQLiteProgramCache(tmp_path / "db"), shared, recheck_seconds=5)
    cache["k"] = b"1"
    with pickle.loads(pickle.dumps(cache)) as twin:
        assert (twin["k"], [type(tier) for tier in twin.tiers]) == (b"1", [SQLiteProgramCache, FileStreamProgramCache])
    cache.close()


def test_compile_once_is_the_last_tiers_and_fills_the_others(shared: FileStreamProgramCache) -> None:
    one, other = (TieredProgramCache(InMemoryProgramCache(), shared) for _ in range(2))
    calls: list[int] = []
    start = threading.Barrier(8)

    def compute() -> Entry:
        calls.append(1)
        return Entry(b"code", META)

    def work(cache: TieredProgramCache) -> None:
        start.wait(30)
        assert cache.get_or_compute("k", compute) == b"code"

    run_threads(work, [(cache,) for cache in (one, other) * 4])
    assert calls == [1]
    for cache in (one, other):
        assert cache.tiers[0].get_entry("k") == Entry(b"code", META)
        assert cache.stats().hits + cache.stats().misses == 4
    assert one.stats().misses + other.stats().misses == 1


def test_what_the_last_tier_does_not_take_is_still_answered_from_above() -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), InMemoryProgramCache(max_size_bytes=3))
    calls: list[int] = []
    for _ in range(3):
        assert cache.get_or_compute("k", lambda: calls.append(1) or b"larger than the cap") == b"larger than the cap"
    assert calls == [1]


def test_a_copy_that_is_not_whole_is_replaced_by_that_of_the_last_tier(shared: FileStreamProgramCache) -> None:
    memory = InMemoryProgramCache()
    cache = TieredProgramCache(memory, shared)
    shared["k"] = b"without its metadata"
    assert cache["k"] == memory["k"]  # a copy, and it is fresh
    whole = Entry(b"code", META)
    shared.put_entry("k", whole)  # as another process does
    found = cache.get_or_compute_entry("k", pytest.fail, is_whole=lambda entry: "kind" in entry.metadata)
    assert found == whole == memory.get_entry("k")

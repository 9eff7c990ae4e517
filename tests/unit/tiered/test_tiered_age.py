# SPDX-License-Identifier: Apache-2.0
"""TieredProgramCache: how old a copy may be, whatever threads, other processes and tiers that refuse do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lockcache.tiered
from lockcache import Entry, FileStreamProgramCache, InMemoryProgramCache, TieredProgramCache
from tests.threads import run_threads
from tests.unit.forked import in_child
from tests.unit.tiered.tiers import Plain, Refusing

META = {"kind": "cubin", "symbol_mapping": {"f<int>": "_Z1f"}, "compile_cost_ns": 7}


def test_a_copy_is_answered_until_it_is_time_to_ask_the_last_tier_again(
    shared: FileStreamProgramCache, clock: Callable[[float], None]
) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), shared, recheck_seconds=60)
    cache["k"] = b"1"
    shared["k"] = b"2"  # as another process would
    clock(59)
    assert cache["k"] == b"1"
    clock(1)
    assert (cache["k"], cache.tiers[0]["k"]) == (b"2", b"2")
    shared["k"] = b"3"
    assert cache["k"] == b"2"
    clock(60)
    assert cache.get_or_compute("k", lambda: pytest.fail("computed")) == b"3"


def test_what_others_removed_is_a_miss_when_it_is_time_and_the_copy_goes(
    shared: FileStreamProgramCache, clock: Callable[[float], None]
) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), shared)
    cache["k"] = b"1"
    del shared["k"]
    clock(1000)
    assert (cache.get("k"), cache.tiers[0].get("k")) == (None, None)


def test_a_recheck_time_of_zero_asks_at_every_read(shared: FileStreamProgramCache) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), shared, recheck_seconds=0)
    for number in range(5):
        shared["k"] = b"%d" % number
        assert cache["k"] == b"%d" % number
    del shared["k"]
    assert cache.get("k") is None


def test_a_copy_that_moves_up_from_a_middle_tier_is_no_younger_for_it(clock: Callable[[float], None]) -> None:
    memory, middle, last = InMemoryProgramCache(), InMemoryProgramCache(), InMemoryProgramCache()
    cache = TieredProgramCache(memory, middle, last, recheck_seconds=60)
    cache["k"] = b"1"
    last["k"] = b"2"
    clock(40)
    del memory["k"]
    assert (cache["k"], memory["k"]) == (b"1", b"1")
    clock(40)
    assert cache["k"] == b"2"


def test_copies_of_unknown_age_are_asked_for_once_too_many_are_known(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    monkeypatch.setattr(lockcache.tiered, "_MOST_TIMES", 10)
    last = InMemoryProgramCache()
    cache = TieredProgramCache(InMemoryProgramCache(), last)
    cache.update({str(number): b"1" for number in range(25)})
    last.update({str(number): b"2" for number in range(25)})
    clock(60)
    assert [cache[str(number)] for number in range(25)] == [b"2"] * 25
    assert len(cache._times) <= 10


def test_a_write_through_this_object_is_seen_at_once_whatever_the_recheck_time(shared: FileStreamProgramCache) -> None:
    cache = TieredProgramCache(InMemoryProgramCache(), shared, recheck_seconds=None)
    for number in range(5):
        cache["k"] = b"%d" % number
        assert cache["k"] == shared["k"] == b"%d" % number
    del cache["k"]
    assert cache.get("k") is None


def test_a_fill_that_comes_after_a_write_that_began_after_its_read_is_given_up() -> None:
    last = Plain()
    cache = TieredProgramCache(InMemoryProgramCache(), last)
    last.items[b"k"] = b"older"

    def overtake() -> None:
        last.after_get = lambda: None
        cache["k"] = b"newer"

    last.after_get = overtake
    assert cache["k"] == b"older"  # what it read, before it was overtaken
    assert cache["k"] == b"newer"


@pytest.mark.parametrize("end", [lambda c: c.__delitem__("k"), lambda c: c.clear()], ids=["delete", "clear"])
def test_a_fill_that_comes_after_a_removal_is_given_up(end: Callable[[Any], None]) -> None:
    last = Plain()
    cache = TieredProgramCache(InMemoryProgramCache(), last)
    last.items[b"k"] = b"removed"

    def overtake() -> None:
        last.after_get = lambda: None
        end(cache)

    last.after_get = overtake
    cache.get("k")
    assert cache.get("k") is None


def test_a_reader_that_began_during_a_write_does_not_bring_the_older_value_back() -> None:
    memory, last = InMemoryProgramCache(), Plain()
    cache = TieredProgramCache(memory, last)
    last.items[b"k"] = b"older"
    reading, written = threading.Event(), threading.Event()

    def hold() -> None:
        last.after_get = lambda: None
        reading.set()
        assert written.wait(30)

    def read() -> None:
        last.after_get = hold
        assert cache["k"] == b"older"

    reader = threading.Thread(target=read)

    def start_reader() -> None:
        reader.start()
        assert reading.wait(30)

    last.before_set = start_reader
    cache["k"] = b"newer"
    written.set()
    reader.join(30)
    assert (cache["k"], memory["k"]) == (b"newer", b"newer")


def test_during_a_write_no_read_gives_the_new_value_and_then_the_older_one() -> None:
    upper, last = Plain(), InMemoryProgramCache()
    cache = TieredProgramCache(upper, last)
    cache["k"] = b"older"
    seen: list[bytes | None] = []
    upper.before_set = lambda: seen.extend(cache.get("k") for _ in range(3))  # between the tiers
    cache["k"] = b"newer"
    assert seen == [b"newer"] * 3


def test_threads_that_write_one_key_leave_all_tiers_with_one_value(shared: FileStreamProgramCache) -> None:
    memory = InMemoryProgramCache()
    cache = TieredProgramCache(memory, shared)
    for turn in range(30):
        start = threading.Barrier(4)

        def write(number: int, turn: int = turn, start: threading.Barrier = start) -> None:
            start.wait(30)
            cache["k"] = b"%d %d" % (turn, number)

        run_threads(write, [(number,) for number in range(4)])
        assert memory["k"] == shared["k"]


def test_a_read_does_not_fail_for_a_tier_that_takes_no_copy(shared: FileStreamProgramCache) -> None:
    upper = Refusing()
    upper.items[b"k"] = b"older"
    cache = TieredProgramCache(upper, shared, recheck_seconds=0)
    shared["k"] = b"newer"
    assert [cache["k"] for _ in range(3)] == [b"newer"] * 3
    shared.put_entry("m", Entry(b"1", META))
    assert TieredProgramCache(Plain(), shared).get_entry("m") == Entry(b"1", META)


def test_a_copy_that_could_not_be_replaced_is_not_answered_again(
    shared: FileStreamProgramCache, clock: Callable[[float], None]
) -> None:
    upper = Refusing()
    upper.items[b"k"] = b"older"
    cache = TieredProgramCache(upper, shared, recheck_seconds=60)
    assert cache["k"] == b"older"  # first met
    shared["k"] = b"newer"
    clock(60)
    assert [cache["k"] for _ in range(3)] == [b"newer"] * 3


def test_a_write_that_an_upper_tier_refuses_raises_and_is_stored_below(shared: FileStreamProgramCache) -> None:
    memory, refusing = InMemoryProgramCache(), Refusing()
    cache = TieredProgramCache(memory, refusing, shared)
    memory["k"] = refusing.items[b"k"] = b"older"
    with pytest.raises(PermissionError):
        cache["k"] = b"newer"
    assert shared["k"] == b"newer"
    assert [cache["k"] for _ in range(3)] == [b"newer"] * 3


def test_a_write_that_the_last_tier_refuses_raises_and_changes_nothing() -> None:
    memory, refusing = InMemoryProgramCache(), Refusing()
    refusing.items[b"k"] = b"older"
    cache = TieredProgramCache(memory, refusing)
    assert cache["k"] == b"older"
    with pytest.raises(PermissionError):
        cache["k"] = b"newer"
    assert [cache["k"] for _ in range(3)] == [b"older"] * 3


def test_a_child_forked_in_the_middle_of_a_write_can_write_that_key(shared: FileStreamProgramCache) -> None:
    upper = Plain()
    cache = TieredProgramCache(upper, shared)

    def fork() -> None:
        upper.before_set = lambda: None

        def child() -> bytes:
            cache["k"] = b"child"
            return cache["k"]

        assert in_child(child) == b"child"

    upper.before_set = fork
    cache["k"] = b"parent"
    assert cache["k"] == b"parent"

# SPDX-License-Identifier: Apache-2.0
"""get_or_compute: one of the callers that miss computes, the others get what it stored."""

from __future__ import annotations

import threading

import pytest

from lockcache import Entry, ReentrantComputeError
from tests.threads import run_threads


def never():
    raise AssertionError("computed although the entry is there")


def test_a_miss_computes_and_stores_and_a_hit_does_not_compute(cache):
    assert cache.get_or_compute("k", lambda: b"code") == b"code"
    assert cache["k"] == cache.get_or_compute("k", never) == b"code"


def test_what_computing_cost_is_recorded(cache):
    entry = cache.get_or_compute_entry("k", lambda: b"code")
    assert entry.metadata["compile_cost_ns"] > 0
    assert cache.get_entry("k") == entry


def test_compute_may_give_an_entry_and_state_the_cost_itself(cache):
    given = Entry(b"code", {"symbol_mapping": {"f<int>": b"_Z1f"}, "compile_cost_ns": 7})
    assert cache.get_or_compute_entry("k", lambda: given) == given
    assert cache.get_or_compute_entry("k", never) == given


def has_symbols(entry: Entry) -> bool:
    return "symbol_mapping" in entry.metadata


WHOLE = Entry(b"whole", {"symbol_mapping": {"f<int>": b"_Z1f"}, "compile_cost_ns": 7})


def test_an_entry_that_is_not_whole_is_computed_again_and_replaced(cache):
    cache["k"] = b"without its metadata"
    assert cache.get_or_compute_entry("k", never) == Entry(b"without its metadata")
    assert cache.get_or_compute_entry("k", lambda: WHOLE, is_whole=has_symbols) == WHOLE
    assert cache.get_or_compute_entry("k", never, is_whole=has_symbols) == WHOLE
    assert (cache.get_entry("k"), len(cache)) == (WHOLE, 1)


def test_a_replacement_that_fails_leaves_the_entry_and_lets_the_next_one_try(cache):
    cache["k"] = b"without its metadata"
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute_entry("k", lambda: 1 // 0, is_whole=has_symbols)
    assert cache["k"] == b"without its metadata"
    with pytest.raises(ReentrantComputeError, match="itself"):
        cache.get_or_compute_entry(
            "k", lambda: cache.get_or_compute_entry("k", never, is_whole=has_symbols), is_whole=has_symbols
        )
    assert cache.get_or_compute_entry("k", lambda: WHOLE, is_whole=has_symbols) == WHOLE


def test_a_replacement_that_is_not_kept_is_returned_and_computed_each_time(make, back_end):
    cache, large = make(max_size_bytes=back_end.cap_for(1, 100)), Entry(b"x" * 1000, WHOLE.metadata)
    cache["k"] = b"without its metadata"
    computed = [cache.get_or_compute_entry("k", lambda: large, is_whole=has_symbols) for _ in range(3)]
    assert computed == [large] * 3


def test_of_many_threads_that_meet_an_entry_that_is_not_whole_one_computes(make, back_end):
    cache, computed, start = make(**back_end.patience), [], threading.Barrier(8)
    cache["k"] = b"without its metadata"

    def compute():
        computed.append(threading.get_ident())
        return WHOLE

    def want():
        start.wait(30)
        results.append(cache.get_or_compute_entry("k", compute, is_whole=has_symbols))

    results: list[Entry] = []
    run_threads(want, [()] * 8)
    assert results == [WHOLE] * 8
    assert len(computed) == 1
    if not back_end.has_server:
        assert (cache.stats().hits, cache.stats().misses) == (7, 1)


def test_what_compute_raises_reaches_its_caller_and_the_next_one_tries(cache):
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute("k", lambda: 1 // 0)
    assert cache.get_or_compute("k", lambda: b"code") == b"code"


def test_a_value_that_cannot_be_stored_is_a_type_error_and_lets_the_next_one_try(cache):
    with pytest.raises(TypeError, match="int"):
        cache.get_or_compute("k", lambda: 5)
    assert cache.get_or_compute("k", lambda: b"code") == b"code"


def test_a_value_that_is_too_large_to_keep_is_not_lost(make, back_end):
    cache = make(max_size_bytes=back_end.cap_for(1, 100))
    assert cache.get_or_compute("k", lambda: b"x" * 1000) == b"x" * 1000
    assert cache.get("k") is None


def test_different_keys_do_not_wait_for_each_other(cache):
    """Each computes only while the other does: one after the other they would never end."""
    inside = threading.Barrier(2)

    def want(key):
        cache.get_or_compute(key, lambda: inside.wait(30) is not None and b"code")

    run_threads(want, [(key,) for key in ("a", "b")])
    assert (cache["a"], cache["b"]) == (b"code", b"code")

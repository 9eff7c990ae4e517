# SPDX-License-Identifier: Apache-2.0
"""The counters of every back end."""

from __future__ import annotations

import pytest

from lockcache import CacheStats, Entry


def test_a_new_cache_has_counted_nothing(cache):
    assert cache.stats() == CacheStats()


def test_reads_are_counted_as_hits_and_misses(cache):
    cache["k"] = b"code"
    cache["k"], cache.get("k"), cache.get_entry("k")
    cache.get("no"), cache.get_entry("no")
    with pytest.raises(KeyError):
        cache["no"]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.unverified_hits, stats.corrupt_entries) == (3, 3, 0, 0)


def test_writes_bytes_and_entries_are_counted(cache, back_end):
    if not back_end.has_accounts:
        pytest.skip("a server's entries are not accounted for")
    cache["a"] = b"x" * 10
    cache["b"] = b"x" * 20
    cache["a"] = b"x" * 30
    cache.put_entry("c", Entry(b""))
    stats = cache.stats()
    assert (stats.puts, stats.entries, stats.bytes) == (4, 3, 50 + 3 * back_end.overhead_bytes)
    del cache["b"]
    cache.clear()
    stats = cache.stats()
    assert (stats.puts, stats.entries, stats.bytes, stats.evictions) == (4, 0, 0, 0)


def test_evictions_are_counted(make, back_end):
    cache = make(max_size_bytes=back_end.cap_for(2, 100))
    for key in "abcde":
        cache[key] = b"x" * 100
    stats = cache.stats()
    assert (stats.puts, stats.evictions, stats.entries) == (5, 3, 2)
    assert stats.bytes == back_end.cap_for(2, 100)


def test_a_write_larger_than_the_cap_is_counted_as_dropped(make):
    cache = make(max_size_bytes=100)
    cache["k"] = b"x" * 1000
    stats = cache.stats()
    assert (stats.puts, stats.dropped_writes, stats.evictions, stats.entries, stats.bytes) == (0, 1, 0, 0, 0)


def test_refused_values_count_for_nothing(cache):
    for key, value in ((1, b"x"), ("k", "x")):
        with pytest.raises(TypeError):
            cache[key] = value
    assert cache.stats() == CacheStats()


def test_a_failed_delete_and_an_empty_clear_count_for_nothing(cache, back_end):
    if not back_end.has_accounts:
        pytest.skip("whether there is something to delete is a lookup, which is counted")
    with pytest.raises(KeyError):
        del cache["k"]
    cache.clear()
    assert cache.stats() == CacheStats()


def test_counters_belong_to_the_object_and_bytes_to_the_store(make, back_end):
    one, other = make(), make()
    one["k"] = b"x" * 10
    assert other.stats().puts == 0
    if back_end.has_accounts:
        assert other.stats().entries == (1 if back_end.is_shared or back_end.has_copies else 0)


def test_stats_are_a_snapshot(cache):
    before = cache.stats()
    cache["k"] = b"1"
    assert before == CacheStats()

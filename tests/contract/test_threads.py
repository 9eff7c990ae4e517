# SPDX-License-Identifier: Apache-2.0
"""Many threads on one cache object: no torn value, no lost count, no error."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockcache import Entry

THREADS = 8


def together(work, threads=THREADS):
    """Runs ``work(number)`` in so many threads that start at once; their results."""
    start = threading.Barrier(threads)

    def run(number):
        start.wait(30)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return [future.result(60) for future in [pool.submit(run, number) for number in range(threads)]]


def test_readers_see_whole_values_with_their_own_metadata(cache):
    def work(number):
        for turn in range(40):
            key, tag = f"k{turn % 3}", number * 1000 + turn
            cache.put_entry(key, Entry(b"%08d" % tag * 200, {"tag": tag}))
            found = cache.get_entry(f"k{(turn + 1) % 3}")
            if found is not None:
                assert found.code == b"%08d" % found.metadata["tag"] * 200
        return True

    assert all(together(work))
    assert cache.stats().corrupt_entries == 0


@pytest.mark.slow
def test_no_count_is_lost(make, back_end):
    cache = make(**back_end.patience)
    cache["k"] = b"code"

    def work(number):
        for turn in range(200):
            assert cache["k"] == b"code"
            assert cache.get("absent") is None
            if turn % 10 == 0:
                cache[f"{number}-{turn}"] = b"x"

    together(work)
    stats = cache.stats()
    assert (stats.hits, stats.misses) == (THREADS * 200, THREADS * 200)
    assert (stats.puts, stats.entries, len(cache)) == (1 + THREADS * 20, 1 + THREADS * 20, 1 + THREADS * 20)


@pytest.mark.slow
def test_everything_at_once_under_a_cap_ends_with_exact_accounting(make, back_end):
    cap = back_end.cap_for(8, 100)
    cache = make(max_size_bytes=cap, **back_end.patience)

    def work(number):
        for turn in range(30):
            key = f"k{(number * 7 + turn) % 20}"
            cache[key] = key.encode() * (100 // len(key))
            found = cache.get(key)
            assert found is None or found == key.encode() * (100 // len(key))
            if turn % 7 == 0:
                try:
                    del cache[key]
                except KeyError:
                    pass
            if turn == 20 and number == 0:
                cache.clear()

    together(work)
    present = [code for code in (cache.get(f"k{number}") for number in range(20)) if code is not None]
    stats = cache.stats()
    assert stats.entries == len(cache)
    if back_end.has_copies:
        return  # a copy may outlive what was evicted from the store
    assert len(cache) == len(present)
    assert stats.bytes == sum(len(code) + back_end.overhead_bytes for code in present) <= cap
    assert stats.dropped_writes == 0


def test_a_cache_may_be_closed_while_others_use_it(make, back_end):
    cache = make(**back_end.patience)

    def work(number):
        for turn in range(60):
            if number == 0:
                cache.close()
            else:
                cache[f"{number}"] = b"%d" % turn
                assert cache[f"{number}"] == b"%d" % turn

    together(work, threads=4)
    assert len(cache) == 3


def test_of_several_deleters_exactly_one_succeeds(make, back_end):
    cache = make(**back_end.patience)
    for turn in range(20):
        cache["k"] = b"%d" % turn

        def work(number):
            try:
                del cache["k"]
            except KeyError:
                return 0
            return 1

        assert sum(together(work, threads=4)) == 1
    assert (cache.stats().entries, cache.stats().bytes) == (0, 0)

# SPDX-License-Identifier: Apache-2.0
"""Cache objects that are copied: by fork, by pickle, by a second object over the same store."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from lockcache import Entry
from tests.threads import running
from tests.unit.forked import in_child


def test_a_forked_child_reads_and_writes(cache, back_end):
    cache.put_entry("k", Entry(b"parent", {"a": 1}))
    cache.close()  # what a server gets, it gets in the background

    def child():
        assert cache.get_entry("k") == Entry(b"parent", {"a": 1})
        cache["c"] = b"child"
        del cache["k"]
        found = cache["c"], cache.get("k"), len(cache)
        cache.close()
        return found

    assert in_child(child) == (b"child", None, 1)
    if back_end.has_copies:
        assert (cache.get("c"), cache["k"], len(cache)) == (b"child", b"parent", 1)
    elif back_end.is_shared:
        assert (cache.get("c"), cache.get("k"), len(cache)) == (b"child", None, 1)
        if back_end.has_accounts:
            assert (cache.stats().entries, cache.stats().bytes) == (1, 5 + back_end.overhead_bytes)
    else:
        assert (cache.get("c"), cache["k"], len(cache)) == (None, b"parent", 1)


@pytest.mark.slow
@pytest.mark.unmeasured  # coverage has a lock of its own, which a child may inherit held
def test_a_child_forked_beside_busy_threads_does_not_hang(make, back_end):
    """The threads hold locks at most moments; the child has the locks and not the threads."""
    cache = make(**back_end.patience)
    stop = threading.Event()

    def work(number):
        while not stop.is_set():
            cache[f"{number}"] = b"x" * 100
            for _ in range(20):  # let the child have the shard's lock too: waiting for it is not fair
                cache.get(f"{number}")
            cache.stats()

    def child():
        for number in range(6):
            cache[f"{number}"] = b"y" * 100
            assert cache.get(f"{number}") in (b"x" * 100, b"y" * 100, None)  # None: replaced at each look
        cache.stats()
        cache.close()
        return cache.stats().dropped_writes

    with running(work, [(number,) for number in range(3)], until=stop):
        assert [in_child(child) for _ in range(5)] == [0] * 5


def test_a_pickled_cache_of_a_shared_store_opens_the_same_store(back_end, make):
    if not (back_end.is_shared and back_end.is_picklable):
        pytest.skip("this store, or a tier in front of it, belongs to its process")
    cache = make(max_size_bytes=100_000)
    cache.put_entry("k", Entry(b"code", {"a": (1, b"2")}))
    for twin in (pickle.loads(pickle.dumps(cache)), copy.copy(cache), copy.deepcopy(cache)):
        with twin:
            assert twin.get_entry("k") == Entry(b"code", {"a": (1, b"2")})
            assert (type(twin), twin.path, twin.max_size_bytes) == (type(cache), cache.path, 100_000)
            twin["twin"] = b"1"
            assert cache["twin"] == b"1"
            assert twin.stats().puts == 1  # counters are not copied


def test_a_store_of_one_process_refuses_to_be_pickled_and_says_what_to_use(back_end, cache):
    if back_end.is_shared:
        pytest.skip("this store is shared")
    with pytest.raises(TypeError, match="FileStreamProgramCache"):
        pickle.dumps(cache)


def test_a_second_object_over_a_shared_store_sees_every_write_at_once(back_end, make):
    if not back_end.is_shared:
        pytest.skip("this store belongs to its object")
    one, other = make(), make()
    for turn in range(20):
        one["k"] = b"%d" % turn
        assert other["k"] == b"%d" % turn
        other["k"] = b"%d again" % turn
        assert one["k"] == b"%d again" % turn
    for cache in (one, other):  # what a server gets, it gets in the background
        cache.close()
    del other["k"]
    other.close()
    assert (one.get("k"), len(one), one.stats().entries) == (None, 0, 0)

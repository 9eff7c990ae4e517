# SPDX-License-Identifier: Apache-2.0
"""InMemoryProgramCache against a model, and in a child forked in the middle of a write."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hypothesis import given, strategies as st

from lockcache import InMemoryProgramCache
from tests.unit.forked import in_child
from tests.unit.material import property_test

_operations = st.lists(
    st.tuples(st.sampled_from(["put", "get", "del", "clear"]), st.integers(0, 5), st.integers(0, 12))
)


@property_test
@given(st.integers(1, 25), _operations)
def test_it_behaves_like_an_ordered_dict_with_a_cap(cap, operations):
    cache, model = InMemoryProgramCache(max_size_bytes=cap), OrderedDict()
    for operation, key, size in operations:
        if operation == "put":
            cache[str(key)] = b"x" * size
            model.pop(key, None)
            if size <= cap:
                model[key] = b"x" * size
            while sum(map(len, model.values())) > cap:
                model.popitem(last=False)
        elif operation == "get":
            assert cache.get(str(key)) == model.get(key)
            if key in model:
                model.move_to_end(key)
        elif operation == "del" and key in model:
            del cache[str(key)], model[key]
        elif operation == "clear":
            cache.clear()
            model.clear()
        stats = cache.stats()
        assert (stats.entries, stats.bytes) == (len(model), sum(map(len, model.values())))


def test_a_child_forked_in_the_middle_of_a_write_has_exact_accounting(monkeypatch):
    cache = InMemoryProgramCache(max_size_bytes=100)
    cache["a"] = b"x" * 60
    removed, forked = threading.Event(), threading.Event()
    pop = OrderedDict.pop

    class Slow(OrderedDict):
        def pop(self, *arguments):
            found = pop(self, *arguments)
            if threading.current_thread() is writer:
                removed.set()  # the entry is gone, its bytes are not yet given back
                assert forked.wait(30)
            return found

    cache._entries = Slow(cache._entries)
    writer = threading.Thread(target=cache.__setitem__, args=("a", b"y" * 60))
    writer.start()
    assert removed.wait(30)

    def child():
        cache["b"] = b"z" * 90
        return cache.get("b"), cache.stats().bytes, cache.stats().entries

    try:
        assert in_child(child) == (b"z" * 90, 90, 1)
    finally:
        forked.set()
        writer.join(30)
    assert (cache["a"], cache.stats().bytes) == (b"y" * 60, 60)

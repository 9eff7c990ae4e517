# SPDX-License-Identifier: Apache-2.0
"""The eviction that runs agrees with a plain model of GDSF, kept next to it in memory."""

from __future__ import annotations

import os
from itertools import count

import pytest
from hypothesis import given, strategies as st

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.accounting import read_worth
from lockcache.filestream.disk import Layout, entry_name
from lockcache.filestream.eviction import evict, value
from tests.unit.material import property_test


class Model:
    """GDSF as its paper has it: each entry has a value of its own, set at each use."""

    def __init__(self, costs: dict[bytes, int], sizes: dict[bytes, int]) -> None:
        self.costs, self.sizes = costs, sizes
        self.age, self.held, self.hits, self.ages = 0.0, [], dict.fromkeys(costs, 0), {}

    def use(self, key: bytes) -> None:
        self.ages[key] = self.age

    def value(self, key: bytes) -> float:
        return self.ages[key] + (1 + self.hits[key]) * self.costs[key] / self.sizes[key]

    def evict(self, needed: int) -> list[bytes]:
        gone: list[bytes] = []
        for key in sorted(self.held, key=lambda key: (self.value(key), self.held.index(key))):
            if sum(self.sizes[each] for each in gone) >= needed:
                break
            gone.append(key)
        self.age = max([self.age, *map(self.value, gone)])
        for key in gone:
            self.held.remove(key)
            self.hits[key] //= 2
        return gone


_KEYS = [b"%d" % number for number in range(12)]


@pytest.mark.long
@property_test
@given(
    # Numbers that evictions remember as they are.
    st.lists(st.integers(1, 10**4).map((2**20).__mul__), min_size=12, max_size=12, unique=True),
    st.lists(st.integers(100, 900), min_size=12, max_size=12),
    st.lists(st.sampled_from(_KEYS), min_size=20, max_size=80),
)
def test_what_is_evicted_is_what_the_model_says(tmp_path_factory, costs, sizes, looked_up) -> None:
    model = Model(dict(zip(_KEYS, costs, strict=True)), dict(zip(_KEYS, sizes, strict=True)))
    root, clock = str(tmp_path_factory.mktemp("cache") / "c"), count(1)
    with FileStreamProgramCache(root, max_size_bytes=2000) as cache, pytest.MonkeyPatch.context() as patch:
        limit, space = 2000, cache._directory.space
        patch.setattr(value, "_IN_USE_NS", 0)  # all of this takes less than a second
        for key in looked_up:
            now_ns = next(clock) * 10**9
            patch.setattr(evict.time, "time_ns", lambda now_ns=now_ns: now_ns)
            if key in model.held:
                assert cache.get(key) is not None
                model.hits[key] += 1
                model.use(key)
            else:
                size = space.of_bytes(sizes[_KEYS.index(key)])
                model.sizes[key] = size
                needed = sum(model.sizes[each] for each in model.held) + size - limit
                if needed > 0:
                    model.evict(needed)
                cache.put_entry(key, Entry(bytes(sizes[_KEYS.index(key)]), {"compile_cost_ns": model.costs[key]}))
                model.held.append(key)
                model.use(key)
            os.utime(cache._directory.layout.entry(entry_name(key)), ns=(now_ns, now_ns))
            cache._report.report()
            assert {each for each in _KEYS if os.path.exists(cache._directory.layout.entry(entry_name(each)))} == {
                *model.held
            }
    worth = read_worth(Layout(root))
    assert {key: worth.of(entry_name(key)) for key in _KEYS} == model.hits
    assert worth.ages.at(2**62) == pytest.approx(model.age)

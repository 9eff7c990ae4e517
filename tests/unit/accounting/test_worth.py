# SPDX-License-Identifier: Apache-2.0
"""The worth of entries: hits, never too few, bounded, aged; costs that were learned; and any bytes are some of both."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import struct

from hypothesis import given, strategies as st

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.state import FILE_BYTES, HITS_AT, HITS_BYTES, PRICES_AT
from lockcache.filestream.accounting.worth import MOST_HITS, UNKNOWN, Worth, read_worth
from lockcache.filestream.disk import Layout, entry_name
from tests.state_pages import state_of
from tests.unit.material import property_test


def name_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def written(worth: Worth, image: bytes = bytes(FILE_BYTES)) -> bytes:
    """Returns the bytes of a file once what changed is written."""
    for at, block in worth.changed():
        image = image[:at] + block + image[at + len(block) :]
    return image


@property_test
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 90)), max_size=60))
def test_counts_are_those_of_a_dictionary_up_to_the_most(hits) -> None:
    counts, exact = Worth(), dict[int, int]()
    for number, more in hits:
        counts.add(name_of(number), more)
        exact[number] = exact.get(number, 0) + more
    for number, count in exact.items():
        assert counts.of(name_of(number)) == min(MOST_HITS, count)
    again = Worth(written(counts))
    assert [again.of(name_of(number)) for number in exact] == [counts.of(name_of(number)) for number in exact]


def test_entries_that_share_counters_count_too_much_and_not_too_little() -> None:
    counts = Worth()
    for number in range(20_000):
        counts.add(name_of(number), 1)
    for number in range(100):
        counts.add(name_of(number), 100)
    found = [counts.of(name_of(number)) for number in range(20_000)]
    assert min(found) >= 1
    assert min(found[:100]) >= 100
    assert sum(count < 10 for count in found[100:]) > 0.95 * 19_900


def test_an_eviction_halves_and_after_many_hits_all_are_halved() -> None:
    counts = Worth()
    counts.add(name_of(1), 9)
    counts.note_evicted([(name_of(1), 5.0)], 7)
    assert counts.of(name_of(1)) == 4
    assert counts.ages.at(7) == 5
    counts.add(name_of(2), 8 * 16376)
    assert counts.of(name_of(1)) == 2
    assert counts.of(name_of(2)) == MOST_HITS // 2


def test_an_entry_whose_two_counters_are_one_is_halved_once() -> None:
    name = f"{0:08x}{5:08x}{5:08x}{0:040x}"
    counts = Worth()
    counts.add(name, 7)
    counts.note_evicted([(name, 1.0)], 1)
    assert counts.of(name) == 3


@property_test
@given(st.binary(max_size=200), st.integers(0, HITS_BYTES))
def test_any_bytes_are_counts(blob, at) -> None:
    counts = Worth(bytes(HITS_AT + at) + blob)
    for number in range(5):
        counts.add(name_of(number), 1)
        assert 0 <= counts.of(name_of(number)) <= MOST_HITS
        counts.note_evicted([(name_of(number), 1.0)], 1)
    assert {at: len(block) for at, block in counts.changed()}[HITS_AT] == HITS_BYTES


def test_costs_that_were_learned_are_known_and_damaged_ones_are_learned_again() -> None:
    names = [name_of(number) for number in range(5000)]
    worth = Worth()
    assert {*worth.of_all(names).costs} == {UNKNOWN}
    parts = worth.of_all(names).parts
    worth.note_evicted(
        [(names[0], 1.0)], 1, dict(zip(parts, [2.0**20 * number for number in range(5000)], strict=True))
    )
    image = written(worth)
    assert len(image) == FILE_BYTES
    assert Worth(image).of_all(names).costs == [2.0**20 * number for number in range(4096)] + [UNKNOWN] * 904
    assert Worth(image).of_all(names[:7]).hits == [0] * 7
    for hits, name in enumerate(names[:7]):
        worth.add(name, hits)
    assert worth.of_all(names[:7]).hits == [worth.of(name) for name in names[:7]] == [*range(7)]
    for damage in (-1.0, math.nan, math.inf, 1e30):
        spoilt = image[: FILE_BYTES - 80] + struct.pack("<f", damage) + image[FILE_BYTES - 76 :]
        assert {*Worth(spoilt).of_all(names).costs} == {UNKNOWN}


def test_an_eviction_learns_anew_what_it_looked_at_and_forgets_the_rest() -> None:
    worth = Worth()
    worth.note_evicted([(name_of(1), 1.0)], 1, {7: 5.0, 8: 6.0})
    again = Worth(written(worth))
    again.note_evicted([(name_of(1), 1.0)], 2)
    assert [at for at, _ in again.changed()] == []
    again.note_evicted([(name_of(1), 1.0)], 3, {9: 1.0})
    assert [at for at, _ in again.changed()] == [PRICES_AT]


def test_hits_are_counted_at_close_and_once_a_minute_without_a_put(cache_path, monkeypatch) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"k"] = b"code"
        for _ in range(3):
            cache.get(b"k")
        assert read_worth(Layout(cache.path)).of(entry_name(b"k")) == 0
        cache._reader._report_at = 0  # a minute has passed
        cache.get(b"k")
        assert cache._reader._report_at > 60
        assert read_worth(Layout(cache.path)).of(entry_name(b"k")) == 3
    assert read_worth(Layout(cache.path)).of(entry_name(b"k")) == 4
    assert os.path.getsize(state_of(cache.path)) == FILE_BYTES


def test_a_table_that_cannot_be_read_or_is_full_of_anything_costs_no_entry(cache_path) -> None:
    with FileStreamProgramCache(cache_path, max_size_bytes=2000) as cache:
        cache[b"k"] = b"code"
        with open(state_of(cache.path), "r+b") as file:
            file.seek(HITS_AT)
            file.write(os.urandom(FILE_BYTES - HITS_AT))
        for number in range(40):
            cache[b"%d" % number] = bytes(100)
            assert cache.get(b"%d" % number) == bytes(100)
        assert cache.stats().bytes <= 2000


def test_hits_that_cannot_be_added_now_are_added_at_close(cache_path, monkeypatch) -> None:
    cache = FileStreamProgramCache(cache_path)
    cache[b"k"] = b"code"
    for _ in range(3):
        cache.get(b"k")

    real = os.pwrite

    def full(fd: int, blob: bytes, at: int) -> int:
        if at == HITS_AT:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, blob, at)

    with monkeypatch.context() as patch:
        patch.setattr("lockcache.filestream.accounting.state.os.pwrite", full)
        cache._report.report_patiently()
    cache.close()
    assert read_worth(Layout(cache.path)).of(entry_name(b"k")) == 3

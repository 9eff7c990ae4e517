# SPDX-License-Identifier: Apache-2.0
"""The size cap on every back end: least recently used goes first, and what cannot fit harms nobody else."""

from __future__ import annotations

import pytest

PAYLOAD = 100


def test_a_cap_that_is_not_positive_is_a_value_error(make_dropin):
    for cap in (0, -1, -(10**30)):
        with pytest.raises(ValueError, match="max_size_bytes"):
            make_dropin(max_size_bytes=cap)


def test_a_cap_that_is_none_is_an_error_that_shows_it(make):
    for cap in (True, False, 1.5, b"5", [5]):
        with pytest.raises(TypeError, match="max_size_bytes") as error:
            make(max_size_bytes=cap)
        assert repr(cap) in str(error.value)
    for words in ("5", "ten", "0", ""):
        with pytest.raises(ValueError, match=f"max_size_bytes: {words!r}"):
            make(max_size_bytes=words)


def test_a_cap_may_be_written_with_its_unit(make, back_end):
    cap = back_end.cap_for(1, PAYLOAD)
    cache = make(max_size_bytes=f"{cap}B")
    cache[b"a"], cache[b"b"] = b"a" * PAYLOAD, b"b" * PAYLOAD
    assert (cache.get(b"a"), cache.get(b"b")) == (None, b"b" * PAYLOAD)


def test_a_cap_beyond_what_the_accounting_holds_is_a_value_error(make):
    with pytest.raises(ValueError, match="max_size_bytes"):
        make(max_size_bytes=2**63)
    assert len(make(max_size_bytes=2**63 - 1)) == 0


def test_no_cap_means_no_eviction(dropin):
    dropin.update({str(number): b"x" * 1000 for number in range(50)})
    assert len(dropin) == 50


def test_an_entry_of_exactly_the_cap_is_kept(make_dropin, dropin_back_end):
    cache = make_dropin(max_size_bytes=dropin_back_end.cap_for(1, PAYLOAD))
    cache["k"] = b"x" * PAYLOAD
    assert cache["k"] == b"x" * PAYLOAD


def test_the_oldest_goes_first(make_dropin, dropin_back_end):
    cache = make_dropin(max_size_bytes=dropin_back_end.cap_for(3, PAYLOAD))
    for key in "abcde":
        cache[key] = key.encode() * PAYLOAD
    assert [key for key in "abcde" if cache.get(key)] == ["c", "d", "e"]


@pytest.mark.parametrize("read", [lambda c, k: c[k], lambda c, k: c.get(k)], ids=["getitem", "get"])
def test_what_was_read_stays_before_what_was_only_written(make_dropin, dropin_back_end, read):
    if not dropin_back_end.counts_each_use:
        pytest.skip("not each read counts as a use at once")
    cache = make_dropin(max_size_bytes=dropin_back_end.cap_for(3, PAYLOAD))
    for key in "abc":
        cache[key] = b"x" * PAYLOAD
    read(cache, "a")
    cache["d"] = b"x" * PAYLOAD
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_get_entry_is_a_read_too(make, back_end):
    if not back_end.counts_each_use:
        pytest.skip("not each read counts as a use at once")
    cache = make(max_size_bytes=back_end.cap_for(2, PAYLOAD))
    cache["a"] = cache["b"] = b"x" * PAYLOAD
    cache.get_entry("a")
    cache["c"] = b"x" * PAYLOAD
    assert [key for key in "abc" if cache.get(key)] == ["a", "c"]


def test_a_rewritten_entry_is_the_most_recent_one(make_dropin, dropin_back_end):
    cache = make_dropin(max_size_bytes=dropin_back_end.cap_for(2, PAYLOAD) + PAYLOAD)
    cache["a"] = cache["b"] = b"x" * PAYLOAD
    cache["a"] = b"y" * PAYLOAD
    cache["c"] = b"x" * PAYLOAD
    cache["d"] = b"x" * PAYLOAD
    assert cache.get("b") is None


@pytest.mark.parametrize("too_much", [1, 10 * PAYLOAD])
def test_an_entry_larger_than_the_cap_does_not_survive_and_evicts_nothing_else(make, back_end, too_much):
    cap = back_end.cap_for(3, PAYLOAD)
    cache = make(max_size_bytes=cap)
    cache.update({key: key.encode() * PAYLOAD for key in "abc"})
    cache["big"] = b"x" * (cap + too_much)
    assert cache.get("big") is None
    assert {key: cache.get(key) for key in "abc"} == {key: key.encode() * PAYLOAD for key in "abc"}


def test_an_entry_larger_than_the_cap_removes_the_older_value_under_its_key(make_dropin):
    cache = make_dropin(max_size_bytes=500)
    cache["k"] = b"older"
    cache["k"] = b"x" * 501
    assert (cache.get("k"), len(cache)) == (None, 0)


def test_overwriting_one_key_never_evicts_another(make, back_end):
    # Room for the two entries and for the one being written.
    cache = make(max_size_bytes=back_end.cap_for(3, PAYLOAD))
    cache["other"] = b"x" * PAYLOAD
    for number in range(20):
        cache["k"] = b"%d" % (number % 10) * PAYLOAD
    assert cache["other"] == b"x" * PAYLOAD


def test_deleted_entries_make_room(make, back_end):
    cache = make(max_size_bytes=back_end.cap_for(3, PAYLOAD))
    cache.update(dict.fromkeys("abc", b"x" * PAYLOAD))
    del cache["b"]
    cache["d"] = b"x" * PAYLOAD
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    cache.clear()
    cache.update(dict.fromkeys("efg", b"x" * PAYLOAD))
    assert len(cache) == 3

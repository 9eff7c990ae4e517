# SPDX-License-Identifier: Apache-2.0
"""The behaviour that a caller of cuda.core's caches observes today, on every back end and on cuda.core's own."""

from __future__ import annotations

from types import MappingProxyType

import pytest

KEYS = [b"k", "", b"\0", b"a\0b", b"ab", b"ab ", b"AB", b"\0" * 300, b"x" * 10_000, "\U0001f600", bytes(range(256))]


def test_each_key_is_an_entry_of_its_own(dropin):
    for number, key in enumerate(KEYS):
        assert dropin.get(key) is None
        dropin[key] = b"%d" % number
    assert [(dropin[key], dropin.get(key)) for key in KEYS] == [(b"%d" % number,) * 2 for number in range(len(KEYS))]
    assert len(dropin) == len(KEYS)


def test_a_str_its_utf8_bytes_and_bytearray_are_one_entry(dropin):
    for text in ("k", "ключ", ""):
        spellings = [text, text.encode(), bytearray(text.encode())]
        for number, written in enumerate(spellings):
            dropin[written] = b"%d" % number
            assert [dropin[read] for read in spellings] == [b"%d" % number] * 3
        assert len(dropin) == 1
        del dropin[spellings[2]]
        assert [dropin.get(read) for read in spellings] == [None] * 3


def test_a_key_of_another_type_is_a_type_error_that_names_it(dropin):
    for key in (1, None, ("k",), memoryview(b"k"), object):
        for use in (
            *(dropin.__getitem__, dropin.get, dropin.__delitem__),
            lambda key: dropin.__setitem__(key, b"code"),
            lambda key: dropin.update([(key, b"code")]),
        ):
            with pytest.raises(TypeError, match=type(key).__name__):
                use(key)
    assert len(dropin) == 0


def test_values_are_bytes_like_and_reads_give_bytes(dropin):
    for kind in (bytes, bytearray, memoryview):
        for value in (b"", b"\0", bytes(range(256)) * 1000):
            dropin["k"] = kind(value)
            for read in (dropin["k"], dropin.get("k")):
                assert type(read) is bytes
                assert read == value


def test_a_memoryview_is_stored_as_its_bytes_whatever_its_shape(dropin):
    dropin["strided"] = memoryview(b"a-b-c-")[::2]
    dropin["items"] = memoryview(b"12345678").cast("I")
    assert (dropin["strided"], dropin["items"]) == (b"abc", b"12345678")


def test_a_stored_bytearray_is_a_copy(dropin):
    value = bytearray(b"before")
    dropin["k"] = value
    value[:] = b"after!"
    assert dropin["k"] == b"before"


def test_a_value_of_another_type_is_a_type_error_that_names_it_and_stores_nothing(dropin):
    dropin["k"] = b"older"
    for value in ("text", 5, None, [b"x"]):
        with pytest.raises(TypeError, match=type(value).__name__):
            dropin["k"] = value
        assert dropin["k"] == b"older"


def test_a_missing_key_is_a_key_error_that_holds_it(dropin):
    with pytest.raises(KeyError) as reading:
        dropin["no such key"]
    with pytest.raises(KeyError) as deleting:
        del dropin["no such key"]
    assert reading.value.args == deleting.value.args == ("no such key",)


def test_get_gives_the_default_for_a_missing_key_only(dropin):
    default = object()
    assert dropin.get("k") is None
    assert dropin.get("k", default) is default
    dropin["k"] = b""
    assert dropin.get("k", default) == b""


def test_a_second_value_replaces_the_first(dropin):
    for value in (b"first", b"2", b"", b"a longer one than all before"):
        dropin["k"] = value
        assert (dropin["k"], len(dropin)) == (value, 1)


def test_a_deleted_entry_is_gone_and_can_be_stored_again(dropin):
    dropin["k"], dropin["other"] = b"1", b"2"
    del dropin["k"]
    assert (dropin.get("k"), dropin["other"], len(dropin)) == (None, b"2", 1)
    dropin["k"] = b"3"
    assert dropin["k"] == b"3"


def test_update_takes_a_mapping_or_pairs(dropin):
    for number, form in enumerate((dict, MappingProxyType, lambda items: list(items.items()))):
        dropin.update(form({"a": b"a%d" % number, b"b": b"b%d" % number}))
        assert (dropin["a"], dropin["b"], len(dropin)) == (b"a%d" % number, b"b%d" % number, 2)
    dropin.update(iter([("a", b"0"), (b"b", b"2"), (b"a", b"the last wins")]))
    assert (dropin["a"], dropin["b"]) == (b"the last wins", b"2")


def test_an_update_that_fails_leaves_what_came_before_it(dropin):
    with pytest.raises(TypeError):
        dropin.update([("a", b"1"), ("b", 2), ("c", b"3")])
    assert [dropin.get(key) for key in "abc"] == [b"1", None, None]


def test_update_goes_through_the_caches_own_store(make, cache):
    seen = []

    class Watching(type(cache)):
        def __setitem__(self, key, value):
            seen.append(key)
            super().__setitem__(key, value)

    make(kind=Watching).update({"a": b"1", "b": b"2"})
    assert seen == ["a", "b"]


def test_update_takes_no_keyword_arguments(dropin):
    with pytest.raises(TypeError):
        dropin.update(items={})


def test_clear_empties_the_cache_and_leaves_it_usable(dropin, dropin_back_end):
    dropin.clear()
    dropin.update({str(number): b"x" for number in range(40)})
    assert len(dropin) == 40
    dropin.clear()
    assert not dropin_back_end.has_accounts or len(dropin) == 0
    # A server behind a directory is left alone; one that is the cache hides what it has from this object.
    is_behind = dropin_back_end.has_server and dropin_back_end.has_accounts
    assert dropin.get("1") in ((None, b"x") if is_behind else (None,))
    dropin["1"] = b"again"
    assert dropin["1"] == b"again"


def test_there_is_no_in_and_no_iteration(dropin):
    dropin["k"] = b"code"
    with pytest.raises(TypeError):
        assert "k" in dropin
    with pytest.raises(TypeError):
        list(dropin)


def test_a_closed_cache_can_be_used_again(dropin):
    dropin["k"] = b"1"
    for _ in range(3):
        dropin.close()
        dropin.close()
        assert dropin["k"] == b"1"
        dropin["k"] = b"1"


def test_a_with_block_gives_the_cache_and_lets_errors_through(dropin):
    with dropin as inside:
        assert inside is dropin
    with pytest.raises(ZeroDivisionError), dropin:
        raise ZeroDivisionError

# SPDX-License-Identifier: Apache-2.0
"""Entries with metadata on every back end: it comes back as it went in, together with its own code."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from lockcache import Entry

METADATA = {
    "kind": "cubin",
    "arch": "sm_90",
    "symbol_mapping": {"f<int>": "_Z1fIiE", "f<float>": b"_Z1fIfE"},
    "compile_cost_ns": 123_456_789,
    "user": (1, [2.5, None, True], {"nested": (b"\0\xff", [])}, {b"bytes": "keys"}),
    "empty": {},
}


def test_an_entry_comes_back_with_its_metadata(cache):
    assert cache.get_entry("k") is None
    cache.put_entry("k", Entry(b"code", METADATA))
    found = cache.get_entry("k")
    assert found == Entry(b"code", METADATA)
    assert sorted(map(repr, found.metadata.items())) == sorted(map(repr, METADATA.items())), "1 == True == 1.0"
    assert cache["k"] == b"code"


def test_metadata_of_any_size_comes_back(cache):
    for size in (0, 200, 3_000, 5_000, 70_000):
        cache.put_entry("k", Entry(b"code", {"blob": b"m" * size}))
        assert cache.get_entry("k") == Entry(b"code", {"blob": b"m" * size})
        assert cache["k"] == b"code"


def test_an_entry_without_metadata_has_an_empty_mapping(cache):
    cache["plain"] = b"code"
    cache.put_entry("entry", Entry(b"code"))
    assert cache.get_entry("plain") == cache.get_entry("entry") == Entry(b"code", {})


def test_each_write_replaces_code_and_metadata_as_one(cache):
    for number in range(5):
        cache.put_entry("k", Entry(b"%d" % number, {"number": number, "blob": b"m" * 2000 * number}))
        assert cache.get_entry("k") == Entry(b"%d" % number, {"number": number, "blob": b"m" * 2000 * number})
    cache["k"] = b"plain"
    assert cache.get_entry("k") == Entry(b"plain", {})


def test_a_deleted_entry_leaves_no_metadata_for_the_next(cache):
    cache.put_entry("k", Entry(b"1", METADATA))
    del cache["k"]
    assert cache.get_entry("k") is None
    cache["k"] = b"1"
    assert cache.get_entry("k") == Entry(b"1", {})


def test_what_was_read_is_a_copy(cache):
    cache.put_entry("k", Entry(b"1", {"list": [1]}))
    cache.get_entry("k").metadata["list"].append(2)
    assert cache.get_entry("k").metadata == {"list": [1]}


def test_the_callers_mapping_is_not_changed(cache):
    given = {"compile_cost_ns": 5, "kind": "ptx"}
    cache.put_entry("k", Entry(b"1", MappingProxyType(given)))
    assert given == {"compile_cost_ns": 5, "kind": "ptx"}
    assert cache.get_entry("k").metadata == given


def test_the_code_of_an_entry_is_coerced_like_a_value(cache):
    for code in (bytearray(b"x"), memoryview(b"x")):
        cache.put_entry("k", Entry(code, {"a": 1}))
        assert type(cache.get_entry("k").code) is bytes


REFUSED = [
    (b"code", TypeError, "bytes"),
    (Entry("code"), TypeError, "str"),
    (Entry(b"", [("a", 1)]), TypeError, "list"),
    (Entry(b"", {1: 2}), TypeError, "int"),
    (Entry(b"", {"a": object()}), TypeError, "object"),
    (Entry(b"", {"a": [{"b": {1, 2}}]}), TypeError, "set"),
    (Entry(b"", {"compile_cost_ns": -1}), ValueError, "-1"),
    (Entry(b"", {"compile_cost_ns": 2**63}), ValueError, "compile_cost_ns"),
    (Entry(b"", {"compile_cost_ns": 1.5}), ValueError, r"1\.5"),
    (Entry(b"", {"compile_cost_ns": True}), ValueError, "True"),
]


def test_what_cannot_come_back_is_refused_when_it_is_put(cache):
    cache["k"] = b"older"
    for entry, error, names in REFUSED:
        with pytest.raises(error, match=names):
            cache.put_entry("k", entry)
        assert cache.get_entry("k") == Entry(b"older", {})

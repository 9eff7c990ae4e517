# SPDX-License-Identifier: Apache-2.0
"""put_files and get_files: a group of files is one entry, of one writer, and what is read is checked."""

from __future__ import annotations

import pytest

from lockcache import Entry
from lockcache.calling import FILES

KERNEL = {"kernel.cubin": b"\x7fELF" * 30, "kernel.json": b"{}", "empty": b""}


def test_files_come_back_in_their_order_with_the_metadata(cache):
    assert cache.get_files("k") is None
    cache.put_files("k", KERNEL, {"arch": "sm_90", "compile_cost_ns": 7})
    assert list(cache.get_files("k").items()) == list(KERNEL.items())
    entry = cache.get_entry("k")
    assert (entry.metadata["arch"], entry.metadata["compile_cost_ns"]) == ("sm_90", 7)
    assert cache["k"] == b"".join(KERNEL.values())


def test_a_group_replaces_another_whole(cache):
    cache.put_files("k", KERNEL)
    cache.put_files("k", {"other": bytearray(b"x"), "kernel.json": memoryview(b"[]")})
    assert cache.get_files("k") == {"other": b"x", "kernel.json": b"[]"}
    cache["k"] = b"plain code"
    assert cache.get_files("k") is None


NAMES = ("", ".", "..", "a/b", "/etc/passwd", "a\0b", "x" * 256, "\udcff")
REFUSED = [
    *(({name: b""}, None, ValueError, "must be named as one file") for name in NAMES),
    ([("a", b"")], None, TypeError, "files must be a mapping"),
    ({}, None, ValueError, "files must be 1 to"),
    ({1: b""}, None, TypeError, "names of files must be str, got int 1"),
    ({"a": "text"}, None, TypeError, r"files\['a'\] must be bytes, got str"),
    ({"a": b""}, [], TypeError, "metadata must be a mapping, got list"),
    ({"a": b""}, {FILES: 1}, ValueError, "metadata must not have 'files'"),
]


def test_what_are_no_files_is_refused_by_name(cache):
    for files, metadata, error, said in REFUSED:
        with pytest.raises(error, match=said):
            cache.put_files("k", files, metadata)
    assert cache.get_files("k") is None


#: Lists of the files in the four bytes "code".
WRITTEN = [
    *(5, [], ["a"], [("a",)], [("a", 4), ("b", 1)], [("a", 3)], [("a", 5)], [("a", -1), ("b", 5)]),
    *([("a", True), ("b", 3)], [("a", 2.0), ("b", 2)], [("../a", 4)], [(b"a", 4)], [("a", 2), ("a", 2)]),
    [("a", 2**63)],
]


def test_what_others_may_have_written_is_checked(cache):
    for listed in WRITTEN:
        cache.put_entry("k", Entry(b"code", {FILES: listed}))
        assert cache.get_files("k") is None, listed


def test_a_turn_stores_files_as_an_entry(cache):
    from lockcache.calling import joined_files

    with cache.begin("k") as turn:
        turn.store(Entry(*joined_files(KERNEL, {"kind": "triton"})))
    assert cache.get_files("k") == KERNEL

# SPDX-License-Identifier: Apache-2.0
"""Reading one entry: what is served, and what a read does not do."""

from __future__ import annotations

import itertools
import os

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.entry import reader
from lockcache.filestream.entry.codec import XATTR
from tests.unit.entry.material import flip, put, write_foreign
from tests.unit.material import descriptors, descriptors_to_begin_with, entry_path


def test_an_attribute_of_a_later_version_is_not_served(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        path = put(cache, "attribute")
        blob = bytearray(os.getxattr(path, XATTR))
        blob[2] = 2
        os.setxattr(path, XATTR, blob)
        assert cache.get("k") is None


@pytest.mark.parametrize("content", [b"of cuda.core", b"x", b"\0" * 100_000])
def test_a_foreign_entry_without_record_is_served_and_counted(cache_path, content):
    with FileStreamProgramCache(cache_path) as cache:
        write_foreign(cache, content)
        assert cache["k"] == cache.get("k") == content
        assert cache.get_entry("k") == Entry(content, {})
        stats = cache.stats()
        assert (stats.hits, stats.unverified_hits, stats.misses, stats.corrupt_entries) == (3, 3, 0, 0)


def test_an_empty_value_of_ours_is_a_verified_hit(cache, mode):
    cache["k"] = b""
    assert cache["k"] == b""
    assert (cache.stats().hits, cache.stats().unverified_hits) == (1, 0)


def test_a_read_takes_no_lock_makes_nothing_and_leaves_nothing_open(cache, mode, monkeypatch):
    put(cache, mode)
    cache.close()
    cache.get("k")
    before = descriptors_to_begin_with()
    files = sorted(os.walk(cache.path))
    for name in ("mkdir", "rename", "unlink", "listdir", "scandir"):
        monkeypatch.setattr(os, name, lambda *a, name=name, **k: pytest.fail(f"{name} on a read"))
    monkeypatch.setattr("lockcache.filestream.disk.locks.ProcessLock.hold", lambda *a: pytest.fail("a lock on a read"))
    monkeypatch.setattr("lockcache.filestream.disk.locks.ProcessLock.try_hold", lambda *a: pytest.fail("a lock"))
    for key in ("k", "absent", "k", "absent", "absent"):
        cache.get(key), cache.get_entry(key)
    flip(entry_path(cache.path), 3)
    cache.get("k")
    monkeypatch.undo()
    assert descriptors() == before
    assert sorted(os.walk(cache.path)) == files


def test_a_hit_saves_what_its_record_says_that_compiling_took(cache, mode):
    day_ns = 86_400 * 10**9
    for key, cost_ns in (("k", 5), ("none", 0), ("longer than any compilation", day_ns + 1)):
        cache.put_entry(key, Entry(b"code", {"compile_cost_ns": cost_ns}))
        for _ in range(3):
            cache.get(key)
    cache.get("missing")
    assert cache._reader.saved_ns == 3 * 5


def test_an_entry_that_is_replaced_at_each_look_is_read_once_that_ends(cache_path, monkeypatch):
    find_records, left = reader.find_records, iter(range(20))
    with FileStreamProgramCache(cache_path, record_files=True) as writer, FileStreamProgramCache(cache_path) as cache:
        writer["k"] = b"before"

        def replace_twice(*arguments):
            for number in itertools.islice(left, 2):
                writer["k"] = b"%d" % number
            return find_records(*arguments)

        monkeypatch.setattr(reader, "find_records", replace_twice)
        assert cache["k"] == b"19"
        assert cache.stats().corrupt_entries == 0

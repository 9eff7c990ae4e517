# SPDX-License-Identifier: Apache-2.0
"""Entries to damage, with their record in each of the places where one can be."""

from __future__ import annotations

import os

import pytest

from lockcache import Entry
from tests.unit.material import entry_path, record_path

CODE, META = b"the code " * 20, {"arch": "sm_90"}

# Where the record is: in the attribute; its head there and its tail in a file; all of it in a file.
MODES = ["attribute", "tail-beside", "file"]

WITH_RECORD_FILE = pytest.mark.parametrize("mode", ["tail-beside", "file"], indirect=True)

WITH_ATTRIBUTE = pytest.mark.parametrize("mode", ["attribute", "tail-beside"], indirect=True)


def metadata(mode):
    return {**META, "blob": b"m" * (5000 if mode == "tail-beside" else 5)}


def put(cache, mode, key="k", code=CODE):
    cache.put_entry(key, Entry(code, metadata(mode)))
    assert os.path.exists(record_path(cache.path, key.encode())) == (mode != "attribute")
    return entry_path(cache.path, key.encode())


def flip(path, bit):
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def expect_corrupt_miss(cache, key="k"):
    before = cache.stats()
    assert cache.get(key) is None
    assert cache.get_entry(key) is None
    with pytest.raises(KeyError):
        cache[key]
    after = cache.stats()
    assert (after.misses, after.corrupt_entries) == (before.misses + 3, before.corrupt_entries + 3)
    assert after.hits == before.hits


def write_foreign(cache, content, key=b"k"):
    path = entry_path(cache.path, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)

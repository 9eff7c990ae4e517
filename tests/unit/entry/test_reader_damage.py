# SPDX-License-Identifier: Apache-2.0
"""Reading what was damaged: what is served is what a writer stored, all else is a counted miss."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.entry.codec import HEAD_BYTES, LARGEST_RECORD_BYTES, XATTR
from tests.crash.damage import DAMAGES, GROWTHS, PLANTED
from tests.unit.entry.material import (
    CODE,
    WITH_RECORD_FILE,
    expect_corrupt_miss,
    flip,
    metadata,
    put,
    write_foreign,
)
from tests.unit.material import entry_path, record_path


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage not in PLANTED])
def test_damage_to_the_bytes_of_an_entry_is_a_corrupt_miss(cache, mode, damage):
    put(cache, mode, "other", b"other")
    DAMAGES[damage](Path(put(cache, mode, code=CODE * 10)))
    if damage in GROWTHS:  # a record in the attribute says how much to read, and that much is as it was
        assert cache.get("k") in (None, CODE * 10)
        assert (cache.get_entry("k") or Entry(CODE * 10)).code == CODE * 10
    else:
        expect_corrupt_miss(cache)


def test_a_flipped_bit_of_the_record_is_a_corrupt_miss(cache, mode):
    path = put(cache, mode)
    if mode == "file":
        for bit in range(8 * HEAD_BYTES):
            flip(record_path(cache.path), bit)
            assert cache.get("k") is None, f"bit {bit}"
            flip(record_path(cache.path), bit)
    else:
        blob = os.getxattr(path, XATTR)
        for bit in range(8 * HEAD_BYTES):
            changed = bytearray(blob)
            changed[bit // 8] ^= 1 << bit % 8
            os.setxattr(path, XATTR, changed)
            assert cache.get("k") is None, f"bit {bit}"
        os.setxattr(path, XATTR, blob)
    assert cache.get("k") == CODE
    assert cache.stats().corrupt_entries == 8 * HEAD_BYTES


@WITH_RECORD_FILE
def test_a_damaged_record_file_is_a_corrupt_miss(cache, mode):
    put(cache, mode)
    path = record_path(cache.path)
    size = os.path.getsize(path)
    for keep in (size - 1, size // 2, 20, 0):
        os.truncate(path, keep)
        expect_corrupt_miss(cache)


def test_a_lost_tail_is_a_corrupt_miss(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        put(cache, "tail-beside")
        os.unlink(record_path(cache.path))
        expect_corrupt_miss(cache)


def copy_in_place(source, target):
    shutil.copyfile(source, target)  # writes into the file that is there: its attribute stays


def copy_and_rename(source, target):
    shutil.copy2(source, target + ".new")  # with its attribute
    os.rename(target + ".new", target)


def hard_link(source, target):
    os.unlink(target)
    os.link(source, target)


def copy_attribute_only(source, target):
    os.setxattr(target, XATTR, os.getxattr(source, XATTR))


@pytest.mark.parametrize("way", [copy_in_place, copy_and_rename, hard_link, copy_attribute_only])
@pytest.mark.parametrize("other", [b"other code", CODE[::-1]], ids=["another-length", "same-length"])
def test_another_entry_copied_over_an_entry_is_a_corrupt_miss(cache, mode, way, other):
    if mode == "file" and way is copy_attribute_only:
        pytest.skip("there is no attribute")
    target = put(cache, mode)
    source = put(cache, mode, "other", other)
    way(source, target)
    if way is copy_attribute_only and mode == "tail-beside":
        shutil.copyfile(record_path(cache.path, b"other"), record_path(cache.path))
    assert cache.get("k") is None
    assert cache.get_entry("k") is None
    assert cache["other"] == other
    assert cache.stats().corrupt_entries == 2


def test_damage_is_mended_by_the_next_write(cache, mode):
    flip(put(cache, mode), 5)
    assert cache.get("k") is None
    put(cache, mode)
    assert cache.get_entry("k") == Entry(CODE, metadata(mode))


def test_damage_is_logged_with_its_path(cache, mode, caplog):
    path = put(cache, mode)
    os.truncate(path, 1)
    with caplog.at_level(logging.WARNING, "lockcache"):
        cache.get("k")
    assert path in caplog.text


def test_an_emptied_foreign_entry_is_a_corrupt_miss(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        write_foreign(cache, b"")
        expect_corrupt_miss(cache)


def test_an_entry_that_stays_damaged_is_said_once_at_warning_and_then_quietly(cache, caplog):
    for key in ("one", "two"):
        cache[key] = b"x" * 100
        flip(entry_path(cache.path, key.encode()), 5)
    with caplog.at_level(logging.DEBUG, "lockcache"):
        for key in ("one", "one", "two", "one"):
            assert cache.get(key) is None
    levels = [record.levelno for record in caplog.records if "not what a writer stored" in record.message]
    assert levels == [logging.WARNING, logging.DEBUG, logging.WARNING, logging.DEBUG]
    assert cache.stats().corrupt_entries == 4


#: What another member may put in a file's place and costs no disk. Of a terabyte no system gives the memory.
HOLES = pytest.mark.parametrize("size_bytes", [64 << 20, 1 << 40], ids=["64-MiB", "1-TiB"])

_LITTLE_MEMORY_BYTES = 4 << 20


@contextlib.contextmanager
def little_memory():
    """Fails where more than a little memory is taken meanwhile."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < _LITTLE_MEMORY_BYTES
    finally:
        tracemalloc.stop()


@HOLES
@WITH_RECORD_FILE
def test_a_hole_in_a_record_files_place_is_replaced_by_a_put(cache, mode, size_bytes):
    put(cache, mode)
    os.truncate(record_path(cache.path), size_bytes)
    with little_memory():
        put(cache, mode, code=b"newer" * 20)
    assert cache.get("k") == b"newer" * 20
    assert os.path.getsize(record_path(cache.path)) < 10_000
    assert cache.stats().dropped_writes == 0


@HOLES
def test_a_payload_that_became_a_hole_is_a_corrupt_miss_and_takes_no_memory(cache, mode, size_bytes):
    os.truncate(put(cache, mode), size_bytes)
    with little_memory():
        # With the record in the attribute, what it vouches for is all that is read, and there still.
        if mode == "attribute":
            assert cache.get("k") == CODE
        else:
            expect_corrupt_miss(cache)


def test_a_record_that_no_reader_would_take_is_not_stored(cache, mode):
    put(cache, mode)
    cache.put_entry("k", Entry(CODE, {"blob": b"m" * LARGEST_RECORD_BYTES}))
    assert cache.get("k") is None, "the older value goes with a write that is dropped"
    assert cache.stats().dropped_writes == 1
    assert cache.stats().corrupt_entries == 0

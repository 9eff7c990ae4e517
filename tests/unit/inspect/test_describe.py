# SPDX-License-Identifier: Apache-2.0
"""Descriptions of entries: they are not a use, and damage says nothing."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.codec import XATTR
from lockcache.filestream.inspect.describe import (
    UNKNOWN,
    Described,
    describe_entry,
    find_entry,
    find_names,
    read_entry,
    sum_up,
)
from tests.unit.material import keys_in_shard

PTX = b"// Cuda compilation tools, release 13.5, V13.5.37\n.version 9.5\n.target sm_90\n"
NAME = entry_name(b"k")


@pytest.fixture
def layout(cache_path: Path) -> Layout:
    return Layout(str(cache_path))


def store(layout: Layout, entry: Entry, **options: bool) -> None:
    with FileStreamProgramCache(layout.root, **options) as cache:
        cache.put_entry("k", entry)


def described(layout: Layout, *, keep_metadata: bool = False) -> Described:
    found = find_entry(layout, NAME)
    assert found is not None
    entry = describe_entry(layout, found, keep_metadata=keep_metadata)
    assert entry is not None
    return entry


FULL = Entry(
    b"x" * 100, {"kind": "cubin", "arch": "sm_90a", "compiler": "nvrtc 13.5", "compile_cost_ns": 7, "more": (1,)}
)


@pytest.mark.parametrize("position, value, said", [(2, 7, "newer"), (0, 0, "damaged"), (4, 99, "damaged")])
def test_a_record_that_is_newer_is_told_from_one_that_is_damaged(
    layout: Layout, position: int, value: int, said: str
) -> None:
    store(layout, FULL)
    blob = bytearray(os.getxattr(layout.entry(NAME), XATTR))
    blob[position] = value
    os.setxattr(layout.entry(NAME), XATTR, bytes(blob))
    entry = described(layout)
    assert (entry.record, entry.cost_ns, entry.compiler) == (said, None, None)


def test_metadata_that_cannot_be_read_is_damage_and_nothing_is_told_of_it(layout: Layout) -> None:
    store(layout, FULL)
    blob = bytearray(os.getxattr(layout.entry(NAME), XATTR))
    blob[-1] ^= 0xFF
    os.setxattr(layout.entry(NAME), XATTR, bytes(blob))
    assert (described(layout).record, described(layout, keep_metadata=True).metadata) == ("damaged", None)


@pytest.mark.parametrize("record_files", [False, True])
@pytest.mark.parametrize("more", [{}, {"long": "x" * 70_000}])
def test_a_record_tells_kind_architecture_compiler_and_cost(layout: Layout, record_files: bool, more: dict) -> None:
    store(layout, Entry(FULL.code, {**FULL.metadata, **more}), record_files=record_files)
    entry = described(layout, keep_metadata=True)
    assert (entry.kind, entry.arch, entry.compiler, entry.cost_ns) == ("cubin", "sm_90a", "nvrtc 13.5", 7)
    assert (entry.record, entry.metadata and entry.metadata["more"]) == ("whole", (1,))
    assert entry.created_ns is not None


def test_sums_are_by_what_records_state(layout: Layout) -> None:
    with FileStreamProgramCache(layout.root) as cache:
        for key, metadata in zip(keys_in_shard(7, 3), ({"namespace": "team"}, {"arch": "sm_90"}, {}), strict=True):
            cache.put_entry(key, Entry(b"code", metadata))
    sums = sum_up(layout, 7)
    assert {name: slot.entries for name, slot in sums.namespaces.items()} == {"team": 1, UNKNOWN: 2}
    assert {name: slot.entries for name, slot in sums.architectures.items()} == {"sm_90": 1, UNKNOWN: 2}


def test_what_the_record_does_not_say_the_first_bytes_tell(layout: Layout) -> None:
    store(layout, Entry(PTX))
    entry = described(layout)
    assert (entry.kind, entry.arch, entry.compiler) == ("ptx", "sm_90", "cuda 13.5.37")


def test_an_entry_without_a_record_is_told_by_its_bytes(layout: Layout) -> None:
    store(layout, Entry(PTX))
    os.removexattr(layout.entry(NAME), XATTR)
    entry = described(layout)
    assert (entry.record, entry.created_ns, entry.kind) == ("none", None, "ptx")


def test_telling_and_reading_are_no_use_of_an_entry(layout: Layout) -> None:
    store(layout, Entry(PTX))
    os.utime(layout.entry(NAME), ns=(10**18, 10**18))
    before = os.stat(layout.entry(NAME))
    assert described(layout).name == NAME
    contents = read_entry(layout, NAME)
    assert contents is not None
    assert contents.payload == PTX
    after = os.stat(layout.entry(NAME))
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)


@pytest.mark.parametrize("size", [0, 50, 101])
def test_a_record_that_does_not_fit_its_payload_says_nothing(layout: Layout, size: int) -> None:
    store(layout, FULL)
    os.truncate(layout.entry(NAME), size)
    entry = described(layout, keep_metadata=True)
    assert (entry.record, entry.kind, entry.arch, entry.cost_ns, entry.metadata) == ("damaged", None, None, None, None)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    blob=st.binary(max_size=120)
    | st.binary(max_size=60).map(lambda tail: b"LC\x01\x01" + struct.pack("<I", len(tail)) + tail)
)
def test_any_attribute_gives_an_answer(layout: Layout, blob: bytes) -> None:
    if find_entry(layout, NAME) is None:
        store(layout, FULL)
    os.setxattr(layout.entry(NAME), XATTR, blob)
    assert described(layout, keep_metadata=True).record in {"whole", "none", "damaged", "newer"}
    contents = read_entry(layout, NAME)
    assert contents is not None
    assert contents.is_verified is not True


@pytest.mark.parametrize("value", [["cubin"], 7, "", "x" * 1000, {"a": 1}])
def test_a_kind_that_is_no_short_text_is_left_out(layout: Layout, value: object) -> None:
    store(layout, Entry(b"x", {"kind": value, "arch": value, "compiler": value}))
    entry = described(layout)
    assert (entry.kind, entry.arch, entry.compiler) == (None, None, None)


def test_reading_says_whether_the_digest_holds(layout: Layout) -> None:
    store(layout, FULL)
    assert getattr(read_entry(layout, NAME), "is_verified", None) is True
    with open(layout.entry(NAME), "r+b") as file:
        file.write(b"y")
    assert getattr(read_entry(layout, NAME), "is_verified", None) is False
    os.removexattr(layout.entry(NAME), XATTR)
    assert getattr(read_entry(layout, NAME), "is_verified", True) is None
    os.unlink(layout.entry(NAME))
    assert read_entry(layout, NAME) is None


def test_an_entry_that_is_gone_since_it_was_listed_is_nothing(layout: Layout) -> None:
    store(layout, FULL)
    found = find_entry(layout, NAME)
    assert found is not None
    os.unlink(layout.entry(NAME))
    assert describe_entry(layout, found) is None


def test_an_entry_that_was_replaced_since_it_was_listed_is_described_as_it_is(layout: Layout) -> None:
    store(layout, FULL)
    found = find_entry(layout, NAME)
    assert found is not None
    store(layout, Entry(PTX))
    entry = describe_entry(layout, found)
    assert entry is not None
    assert (entry.kind, entry.record, entry.size_bytes) == ("ptx", "whole", len(PTX))


def test_names_are_found_by_their_start(layout: Layout) -> None:
    store(layout, FULL)
    assert find_names(layout, NAME[:6], 5) == [NAME]
    assert find_names(layout, "00", 5) == []

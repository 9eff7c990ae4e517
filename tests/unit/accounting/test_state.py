# SPDX-License-Identifier: Apache-2.0
"""The state page: its slots."""

from __future__ import annotations

import errno
import gc
import os
import struct
import time

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.accounting import state as state_module
from lockcache.filestream.accounting.head import Head
from lockcache.filestream.accounting.network_pages import NfsPage, ReopenedPage
from lockcache.filestream.accounting.state import (
    FILE_BYTES,
    PAGE_BYTES,
    Slot,
    StatePage,
    encode_page,
)
from lockcache.filestream.disk.descriptors import KeptDescriptor
from lockcache.filestream.disk.layout import SHARDS
from lockcache.filestream.disk.mounts import NO_OTHERS
from lockcache.filestream.disk.space import Space
from lockcache.filestream.policy import Policy
from tests.unit.material import descriptors, descriptors_to_begin_with, property_test

WHOLE = encode_page(Head(1, Space(4096), Policy(10**6))).ljust(FILE_BYTES, b"\0")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(WHOLE)
    return path


def kept(path) -> KeptDescriptor:
    file = KeptDescriptor()
    file.open(path, os.O_RDWR | os.O_CLOEXEC)
    return file


def open_page(path, kind: type[StatePage] = StatePage) -> StatePage:
    return kind(kept(path))


def test_a_mount_that_refuses_direct_reads_is_read_through_its_cache(file, monkeypatch):
    """The answer of the mount is a fake, because most mounts take these calls. Another error is an error."""
    page, answers = open_page(file, ReopenedPage), iter([errno.EINVAL, errno.EIO])

    def refuse(*_: object) -> int:
        raise OSError(next(answers), "refused")

    monkeypatch.setattr(os, "preadv", refuse)
    assert page.image() == WHOLE[:PAGE_BYTES]
    with pytest.raises(OSError, match="refused"):
        page.image()


def test_a_page_that_a_name_still_leads_to_is_not_there_once_its_server_says_that_it_has_no_name(file, monkeypatch):
    """An NFS client raises this for a name in its cache, after another host has replaced the page."""
    page = open_page(file)
    with open(file, "rb") as known:
        monkeypatch.setattr(state_module, "_lstat", lambda path: os.fstat(known.fileno()))
        assert page.is_at(str(file))
        file.unlink()
        assert not page.is_at(str(file))


def test_a_page_that_is_opened_for_each_use_reads_and_writes_as_one_that_stays_open(file):
    page, other = open_page(file, ReopenedPage), open_page(file)
    assert page.add_locked(3, 1000, 2) == other.slot(3) == Slot(1000, 2)
    assert other.add_locked(3, -400, -1) == page.slot(3) == Slot(600, 1)
    assert page.add_locked(3, 5, 1, known=Slot(600, 1)) == Slot(605, 2)
    page.set_locked(3, Slot(-5, 2**70))
    assert (page.slots(), page.image(), page.total()) == (other.slots(), other.image(), other.total())
    file.rename(file.with_name("aside"))
    assert page.slot(3) == Slot(0, 2**63 - 1), "what is at the name by now is another page"


def test_the_page_is_two_blocks_of_which_the_second_has_little_endian_pairs(file):
    page = open_page(file)
    assert (PAGE_BYTES, file.stat().st_size) == (8192, 73728)
    page.add_locked(3, 1000, 2)
    assert struct.unpack_from("<qq", file.read_bytes(), 4096 + 3 * 16) == (1000, 2)
    assert file.read_bytes()[:4096] == WHOLE[:4096]
    assert page.slot(3) == page.slots()[3] == Slot(1000, 2)


@property_test
@given(
    st.lists(st.tuples(st.integers(0, SHARDS - 1), st.integers(0, 2**40), st.integers(0, 9)), max_size=20),
)
def test_the_total_is_the_sum_of_what_was_added(tmp_path_factory, additions):
    path = tmp_path_factory.mktemp("state") / "state"
    path.write_bytes(WHOLE)
    page = open_page(path)
    for shard, size, entries in additions:
        page.add_locked(shard, size, entries)
    expected = Slot(sum(size for _, size, _ in additions), sum(entries for *_, entries in additions))
    assert page.total() == expected
    assert page.total_bytes() == expected.bytes
    assert encode_page(Head(1, Space(4096), Policy(10**6)), page.slots()) == path.read_bytes()[:PAGE_BYTES]


@pytest.mark.parametrize("keep", [0, 1, 4096, 4100, 4112, PAGE_BYTES - 1])
def test_a_truncated_page_counts_what_is_left_of_it(file, keep):
    page = open_page(file)
    page.set_locked(0, Slot(5, 1))
    os.truncate(file, keep)
    assert len(page.slots()) == SHARDS
    assert page.total_bytes() in (0, 5)
    assert page.slot(SHARDS - 1) == Slot(0, 0)


def test_a_page_knows_that_its_file_was_deleted_or_replaced(file):
    page = open_page(file)
    assert page.is_at(file)
    replacement = file.with_name("new")
    replacement.write_bytes(WHOLE)
    replacement.rename(file)
    assert not page.is_at(file)
    assert open_page(file).is_at(file)
    file.unlink()
    assert not page.is_at(file)


def test_a_page_on_nfs_is_looked_for_once_a_second_by_writers(file, monkeypatch):
    now, looks = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def look(path):
        looks.append(now[0])
        status = os.lstat(path)
        now[0] += 0.5  # until the answer is here
        return status

    monkeypatch.setattr(state_module, "_lstat", look)
    page = NfsPage(kept(file), NO_OTHERS)
    for now[0] in (100.0, 100.9, 101.0, 101.9):
        assert page.was_at(file)
    assert looks == [100.0, 101.0], "by the age of the question"
    file.unlink()
    assert page.was_at(file)
    assert not page.is_at(file), "all others ask each time"
    assert not page.was_at(file), "what another one learned counts too"
    assert not page.was_at(file)


def test_a_page_knows_that_it_was_cut(file):
    page = open_page(file)
    os.truncate(file, 100)
    assert not page.is_at(file)


@pytest.mark.parametrize("wrong", [Slot(2**63 - 1, 2**63 - 1), Slot(-(2**63), -1)])
def test_a_damaged_slot_is_counted_within_range_and_never_raises(file, wrong):
    page = open_page(file)
    os.pwrite(page._fd, struct.pack("<qq", *wrong), 4096)
    page.add_locked(0, 10, 1)
    assert all(0 <= number <= 2**63 - 1 for number in page.slot(0))


def test_the_descriptor_lives_as_long_as_the_page_and_no_longer(file):
    before = descriptors_to_begin_with()
    page = open_page(file)
    assert len(descriptors()) == len(before) + 1
    del page
    gc.collect()
    assert descriptors() == before


def test_a_slot_holds_what_fits_into_it_and_never_less_than_nothing(file):
    page = open_page(file)
    page.add_locked(5, 10, 1)
    page.add_locked(5, -100, -3)
    assert page.slot(5) == Slot(0, 0)
    page.set_locked(0, Slot(2**63 - 1, 2**63 - 1))
    assert page.slot(0) == Slot(2**63 - 1, 2**63 - 1)
    page.set_locked(1, Slot(2**70, 2**70))
    page.add_locked(2, 2**62, 1)
    page.add_locked(2, 2**62, 2**63 - 2)
    assert page.slot(1) == page.slot(2) == Slot(2**63 - 1, 2**63 - 1)


def test_a_page_with_a_second_name_or_that_is_no_plain_file_is_not_ours_alone(file, tmp_path):
    assert open_page(file).is_ours_alone
    os.link(file, tmp_path / "planted")
    assert not open_page(file).is_ours_alone
    os.mkfifo(tmp_path / "pipe")
    assert not open_page(tmp_path / "pipe").is_ours_alone

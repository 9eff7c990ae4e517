# SPDX-License-Identifier: Apache-2.0
"""Locks that a purge of old files removes while writers hold them, so that two have one shard's lock at once."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path

import pytest

from lockcache.filestream.accounting import Slot, state
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.eviction import evict_to_limit
from tests.races.steps import alongside, stop_before
from tests.unit.material import on_disk

KEYS = [key for key in (b"%d" % number for number in range(3000)) if entry_name(key).startswith("00")]


@pytest.mark.parametrize("writer_ends_by", ["its next put", "closing", "nothing"])
@pytest.mark.parametrize("step", [0, 1], ids=["reserving", "publishing"])
def test_a_lock_that_is_removed_in_the_middle_of_a_change_leaves_the_accounting_exact(
    make, one, other, cache_path, monkeypatch, step, writer_ends_by
):
    one[KEYS[0]] = b"x" * 5000
    changes = count()
    # It has read the slot, and is about to write it.
    stop = stop_before(monkeypatch, state, "_pwrite", lambda *_: next(changes) == step)
    with alongside(one.__setitem__, KEYS[1], b"y" * 9000):
        stop.wait_until_reached()
        os.unlink(Layout(str(cache_path)).lock(0))
        other[KEYS[2]] = b"z" * 20_000
        stop.go_on()
    if writer_ends_by == "closing":
        one.close()
    elif writer_ends_by == "its next put":
        one[KEYS[3]] = b"w"
    else:  # as one that is killed then, and the next process takes the lock
        make()[KEYS[3]] = b"w"
    assert (other.stats().bytes, other.stats().entries) == on_disk(cache_path)
    assert other.recount() == []


@pytest.mark.parametrize("content", [b"", b"a user's file"])
def test_a_file_that_is_linked_in_the_place_of_a_lock_is_not_written_to(make, one, cache_path, tmp_path, content):
    one[KEYS[0]] = b"x"
    one.close()
    lock, file = Path(Layout(str(cache_path)).lock(0)), tmp_path / "file"
    file.write_bytes(content)
    lock.unlink()
    lock.hardlink_to(file)
    make()[KEYS[1]] = b"y"
    assert file.read_bytes() == content


@pytest.mark.parametrize("next_step", ["a removal", "an eviction"])
def test_a_lock_that_is_removed_in_the_middle_of_a_change_is_settled_by_whatever_comes_next(
    make, one, other, cache_path, monkeypatch, next_step
):
    one[KEYS[0]] = b"x" * 5000
    one[KEYS[3]] = b"v" * 5000
    changes = count()
    stop = stop_before(monkeypatch, state, "_pwrite", lambda *_: next(changes) == 0)
    with alongside(one.__delitem__, KEYS[0]):
        stop.wait_until_reached()
        os.unlink(Layout(str(cache_path)).lock(0))
        other[KEYS[2]] = b"z" * 20_000
        stop.go_on()
    if next_step == "a removal":
        del one[KEYS[3]]
    else:
        evict_to_limit(one._directory, one.stats().bytes - 1)
    assert (other.stats().bytes, other.stats().entries) == on_disk(cache_path)
    assert other.recount() == []


def test_a_lock_in_the_place_of_another_says_so_until_nobody_can_be_at_work_under_the_older_one(make, one, cache_path):
    one[KEYS[0]] = b"x"
    lock = Path(Layout(str(cache_path)).lock(0))
    assert lock.stat().st_size == 0
    lock.unlink()
    make()[KEYS[1]] = b"y"
    make()[KEYS[2]] = b"z"
    assert (lock.stat().st_size, lock.stat().st_blocks) == (1, 0)
    os.utime(lock, (time.time() - 11,) * 2)
    last = make()
    last._directory.page.set_locked(0, Slot(0, 0))  # by the older one's holder, at last
    last[KEYS[3]] = b"w"
    assert lock.stat().st_size == 0
    assert (last.stats().bytes, last.stats().entries) == on_disk(cache_path)

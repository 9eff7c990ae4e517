# SPDX-License-Identifier: Apache-2.0
"""Seeing what changed behind the accounting's back, on a clock of our own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lockcache.filestream.accounting.state import Slot
from lockcache.filestream.disk.layout import SHARDS, Layout
from lockcache_daemon.stores.recount_schedule import Changes, ShardWatch
from lockcache_daemon.throttle import Throttle

EMPTY = [Slot(0, 0)] * SHARDS


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(tmp_path: Path, clock: Clock) -> ShardWatch:
    (tmp_path / "entries" / "0a").mkdir(parents=True)
    watch = ShardWatch(Layout(str(tmp_path)), clock)
    watch.look(EMPTY)
    clock.now += 10
    watch.look(EMPTY)
    return watch


def test_a_directory_that_changed_while_its_slot_did_not_is_unaccounted(tmp_path: Path, watch: ShardWatch) -> None:
    (tmp_path / "entries" / "0a" / "x").touch()
    assert watch.look(EMPTY) == Changes([10], [], [])
    assert watch.look(EMPTY) == Changes([], [], [])


def test_a_new_shard_is_unaccounted(tmp_path: Path, watch: ShardWatch) -> None:
    (tmp_path / "entries" / "ff").mkdir()
    assert watch.look(EMPTY) == Changes([255], [], [])


def test_a_directory_that_changed_with_its_slot_is_uncertain(tmp_path: Path, watch: ShardWatch) -> None:
    (tmp_path / "entries" / "0a" / "x").touch()
    slots = [*EMPTY]
    slots[10] = Slot(5, 1)
    assert watch.look(slots) == Changes([], [10], [])


def test_a_slot_that_we_set_ourselves_hides_nobody(tmp_path: Path, watch: ShardWatch) -> None:
    slots = [*EMPTY]
    slots[10] = Slot(5, 1)
    watch.set_slot(10, slots[10])
    (tmp_path / "entries" / "0a" / "x").touch()
    assert watch.look(slots) == Changes([10], [], [])


def test_a_change_within_one_tick_of_a_coarse_mtime_is_found_by_looking_again(
    tmp_path: Path, watch: ShardWatch, clock: Clock
) -> None:
    shard = tmp_path / "entries" / "0a"
    second = int(time.time())
    os.utime(shard, (second, second))
    assert watch.look(EMPTY) == Changes([10], [], [])
    (shard / "x").touch()
    os.utime(shard, (second, second))  # as a file system does whose mtimes tick in seconds
    clock.now += 1.9
    assert watch.look(EMPTY) == Changes([], [], [])
    clock.now += 0.1
    assert watch.look(EMPTY) == Changes([], [], [10])
    assert watch.look(EMPTY) == Changes([], [], [])


def test_a_shard_that_was_quiet_for_hours_is_not_looked_at_again_after_a_start(tmp_path: Path, clock: Clock) -> None:
    shard = tmp_path / "entries" / "0a"
    shard.mkdir(parents=True)
    os.utime(shard, (10**9, 10**9))
    watch = ShardWatch(Layout(str(tmp_path)), clock)
    assert watch.look(EMPTY) == Changes([10], [], [])
    clock.now += 10
    assert watch.look(EMPTY) == Changes([], [], [])


def test_work_is_due_again_only_after_its_cost_is_a_small_share_of_the_time() -> None:
    throttle = Throttle(1e-9, 0.5)
    for is_known in (False, True):
        assert throttle.is_due
        with throttle:
            sum(range(1000))
        assert throttle.is_due is not is_known  # one time is not a rule


def test_work_that_fits_into_its_share_of_a_tick_is_due_at_every_one() -> None:
    throttle = Throttle(0.5, 3600)
    with throttle:
        sum(range(1000))
    assert throttle.is_due

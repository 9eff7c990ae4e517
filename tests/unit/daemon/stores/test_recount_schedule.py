# SPDX-License-Identifier: Apache-2.0
"""Costs of recounting a directory without writers, counted in recounts and not by a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import SHARDS, Layout
from lockcache.filestream.repair.recount import Repair, recount_shard
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.stores import recount_schedule
from lockcache_daemon.stores.recount_schedule import ShardWatch
from tests.daemon.directories import fill

TICKS = 100


class Watched:
    """The counting of a directory, the shards that it recounted, and the clock by which it looks again."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.recounted: list[int] = []
        self.directory = CacheDirectory(str(root), 1.0)
        monkeypatch.setattr(recount_schedule, "ShardWatch", self._watch)
        monkeypatch.setattr(recount_schedule, "recount_shard", self._recount)
        self.counting = recount_schedule.Counting(self.directory, Rules(), lambda: False)

    def ticks(self, number: int) -> list[int]:
        """Tick so often; the shards that were recounted."""
        self.recounted.clear()
        for _ in range(number):
            self.counting.tick()
        return self.recounted

    def _watch(self, layout: Layout) -> ShardWatch:
        return ShardWatch(layout, lambda: self.now)

    def _recount(
        self, directory: CacheDirectory, shard: int, timeout_seconds: float, between: Callable[[], object]
    ) -> Repair:
        self.recounted.append(shard)
        return recount_shard(directory, shard, timeout_seconds, between)


@pytest.fixture
def watch(cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Watched]]:
    made: list[Watched] = []

    def make() -> Watched:
        made.append(Watched(cache_path, monkeypatch))
        return made[-1]

    yield make
    for watched in made:
        watched.directory.close()


@pytest.mark.slow
def test_freshly_filled_shards_are_recounted_once_at_the_start_and_then_one_a_tick_with_the_rotation(
    cache_path: Path, watch: Callable[[], Watched]
) -> None:
    fill(cache_path, 2000, 1)
    watched = watch()
    assert set(watched.ticks(1)) == set(range(SHARDS))
    watched.now += 10  # by when each of them is due once more
    assert len(watched.ticks(TICKS)) <= TICKS


def test_shards_to_look_at_once_more_and_the_rotation_take_turns(
    cache_path: Path, watch: Callable[[], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recount_schedule, "_BACKGROUND_DUTY", 1.0)  # each tick
    changed = [int(path.parent.name, 16) for path in fill(cache_path, 4, 1)]
    watched = watch()
    assert watched.ticks(1)[-1] == 0  # the rotation's first
    watched.now += 10
    assert set(watched.ticks(8)) == {*changed, 1, 2, 3, 4}


def test_beside_strangers_a_coarse_mtime_hides_nobody_for_long(
    cache_path: Path, watch: Callable[[], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recount_schedule, "_LOOKING_DUTY", 1.0)  # each tick
    watched = watch()
    watched.counting.change(Rules(interval_seconds=600))  # with time for all, on a busy machine too
    watched.ticks(1)
    fill(cache_path, 300, 1)
    watched.ticks(1)
    watched.now += 10
    assert len(watched.ticks(2)) > 100


def test_the_duties_of_an_idle_daemon_add_up_to_less_than_what_is_promised() -> None:
    assert recount_schedule._LOOKING_DUTY + recount_schedule._BACKGROUND_DUTY < 0.008

# SPDX-License-Identifier: Apache-2.0
"""Budgets that directories share, tick by tick, in this process."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache_daemon.budgets import shared
from lockcache_daemon.budgets.choose import Room
from lockcache_daemon.budgets.shared import SharedBudgets
from lockcache_daemon.keeper.keeper import Keeper
from lockcache_daemon.observe.log import Report
from lockcache_daemon.settings.model import Settings
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.settings.values import Free
from lockcache_daemon.signals import StopSignals
from tests.daemon.directories import fill, names_on_disk

WANTED = 1_000_000


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str, Rules], Keeper]]:
    stop, made = StopSignals(), []

    def start(name: str, rules: Rules) -> Keeper:
        report = Report(as_json=True, out=io.StringIO(), err=io.StringIO())
        made.append(Keeper(str(tmp_path / name), rules, report, stop))
        made[-1].open()
        return made[-1]

    yield start
    for keeper in made:
        keeper.close()
    with stop:
        pass  # closes its sockets


def test_a_file_system_that_frees_late_does_not_lose_the_whole_cache_to_one_shortage(
    tmp_path: Path, make: Callable[[str, Rules], Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake: none of the file systems that can be had here frees as late as some do.
    free = [900_000]
    monkeypatch.setattr(shared, "look_at_file_system", lambda _: Room(10**9, free[0], 0, 0))
    fill(tmp_path / "a", 100, 10_000)
    keeper, budgets = make("a", Rules(min_free=Free(bytes=WANTED))), SharedBudgets()
    keeper.tick()
    for _ in range(5):
        budgets.tick(Settings(), [keeper])
        assert len(names_on_disk(tmp_path / "a")) == 80  # 1.1 MB is where it ends
    free[0] = 1_000_000  # half of it came: the rest is somebody else's doing
    for _ in range(5):
        budgets.tick(Settings(), [keeper])
        assert len(names_on_disk(tmp_path / "a")) == 70


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("looks_between", [False, True])
def test_a_shortage_that_follows_at_once_on_one_that_was_mended_is_mended_as_well(
    make: Callable[[str, Rules], Keeper], mount_tmpfs: Callable[..., Path], looks_between: bool
) -> None:
    disk = mount_tmpfs("size=8m")
    fill(disk / "a", 300, 16_384)
    wanted = Free(bytes=4 * WANTED)
    keeper, budgets = make(str(disk / "a"), Rules(min_free=wanted)), SharedBudgets()
    keeper.tick()
    for name in ("first", "second"):
        budgets.tick(Settings(), [keeper])
        assert shared.look_at_file_system(str(disk)).free_bytes >= 4 * WANTED
        if looks_between:
            budgets.tick(Settings(), [keeper])
        (disk / name).write_bytes(bytes(WANTED))
    budgets.tick(Settings(), [keeper])
    assert shared.look_at_file_system(str(disk)).free_bytes >= 4 * WANTED


@pytest.mark.slow
def test_directories_on_one_file_system_share_its_shortage(
    tmp_path: Path, make: Callable[[str, Rules], Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "look_at_file_system", lambda _: Room(10**9, 900_000, 0, 0))
    fill(tmp_path / "a", 10, 10_000)
    fill(tmp_path / "b", 50, 10_000, first=100)
    fill(tmp_path / "c", 50, 10_000)
    rules = Rules(min_free=Free(bytes=WANTED))
    keepers = [make("a", rules), make("b", rules), make("c", Rules(max_entries=1000))]
    for keeper in keepers:
        keeper.tick()
    SharedBudgets().tick(Settings(), keepers)
    assert [len(names_on_disk(tmp_path / name)) for name in "abc"] == [0, 40, 50]


@pytest.mark.slow
def test_where_nothing_can_go_directories_are_not_walked_again_and_again(
    tmp_path: Path, make: Callable[[str, Rules], Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "look_at_file_system", lambda _: Room(10**9, 0, 0, 0))
    fill(tmp_path / "a", 10, 10_000)
    rules = Rules(min_free=Free(bytes=WANTED), floor_bytes=100_000)
    keepers = [make("a", rules), make("b", rules)]
    for keeper in keepers:
        keeper.tick()
    monkeypatch.setattr(shared, "_FRUITLESS_DUTY", 1e-9)
    budgets, walks = SharedBudgets(), []
    monkeypatch.setattr(Keeper, "entries", lambda self: iter(walks.append(self.root) or ()))
    for _ in range(10):
        budgets.tick(Settings(), keepers)
    assert len(walks) <= 4
    assert len(names_on_disk(tmp_path / "a")) == 10

# SPDX-License-Identifier: Apache-2.0
"""The keepers of all directories, and what a reload does to those that are at work."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockcache_daemon.keeper.keeper import Keeper
from lockcache_daemon.observe.log import Report
from lockcache_daemon.run import ticks
from lockcache_daemon.run.keepers import KeeperSet
from lockcache_daemon.run.ticks import TickRunner
from lockcache_daemon.settings.model import DirectorySettings, Settings
from lockcache_daemon.signals import StopSignals
from tests.daemon.daemon_process import HANG_SECONDS, until
from tests.state_pages import policy_of


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    stop = StopSignals()
    yield stop
    with stop:
        pass  # closes its sockets


def settings_for(*directories: tuple[Path, int]) -> Settings:
    return Settings(directories=tuple(DirectorySettings(path=str(path), max_size=cap) for path, cap in directories))


def cap_of(path: Path) -> object:
    return policy_of(path).max_size_bytes


@pytest.mark.slow
@pytest.mark.parametrize("stays", [True, False])
def test_a_reload_reaches_all_but_a_directory_that_hangs_and_that_one_later(
    tmp_path: Path, stop: StopSignals, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    monkeypatch.setattr(ticks, "_PATIENCE_SECONDS", 0.02)
    out, began, may_go_on = io.StringIO(), threading.Event(), threading.Event()
    a, b, c = (tmp_path / name for name in "abc")
    keeper_set = KeeperSet(settings_for((a, 1_000_000), (b, 1_000_000)), Report(as_json=True, out=out, err=out), stop)
    for keeper in keeper_set.keepers:
        keeper.open()
    hanging = keeper_set.keepers[0]
    tick = Keeper.tick

    def hang(keeper: Keeper) -> None:
        if keeper is hanging:
            began.set()
            assert may_go_on.wait(HANG_SECONDS)
        tick(keeper)

    monkeypatch.setattr(Keeper, "tick", hang)

    def take_turns() -> None:
        if keeper_set.is_behind:
            keeper_set.change(keeper_set.settings, runner.busy)
        for keeper in keeper_set.keepers:
            runner.run(keeper, is_alone=False)

    with TickRunner() as runner, ExitStack() as stack:
        stack.callback(may_go_on.set)
        take_turns()
        assert began.wait(HANG_SECONDS)
        keeper_set.change(
            settings_for(*([(a, 2_000_000)] if stays else []), (b, 2_000_000), (c, 2_000_000)), runner.busy
        )
        assert keeper_set.is_behind
        until(lambda: (take_turns(), [cap_of(each) for each in (b, c)])[1] == [2_000_000] * 2)
        assert (cap_of(a), hanging in keeper_set.keepers, keeper_set.is_behind) == (1_000_000, True, True)
        may_go_on.set()
        until(lambda: (take_turns(), not keeper_set.is_behind)[1])
        assert (hanging in keeper_set.keepers) == stays
        assert ('"event": "release"' in out.getvalue()) == (not stays)
        until(lambda: (take_turns(), cap_of(a))[1] == (2_000_000 if stays else 1_000_000))
    keeper_set.close()


def test_a_directory_of_which_another_layout_is_wanted_is_opened_anew(tmp_path: Path, stop: StopSignals) -> None:
    out, path = io.StringIO(), str(tmp_path / "a")
    before, after = (
        Settings(directories=(DirectorySettings(path=path, max_size=1_000_000, layout=layout),))
        for layout in ("auto", "cuda.core")
    )
    keeper_set = KeeperSet(before, Report(as_json=True, out=out, err=out), stop)
    [first] = keeper_set.keepers
    first.open()
    keeper_set.change(after)
    [second] = keeper_set.keepers
    assert (second is first, first.is_able, keeper_set.is_behind) == (False, False, False)
    second.tick()
    assert (second.is_able, second.layout) == (True, "cuda.core")
    keeper_set.close()

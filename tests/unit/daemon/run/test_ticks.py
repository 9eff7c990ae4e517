# SPDX-License-Identifier: Apache-2.0
"""Ticks of several directories, of which one takes long."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache_daemon.budgets.shared import SharedBudgets
from lockcache_daemon.keeper.keeper import Keeper
from lockcache_daemon.observe.log import Report
from lockcache_daemon.run import ticks
from lockcache_daemon.run.ticks import TickRunner
from lockcache_daemon.settings.model import Settings
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.signals import Stopped, StopSignals
from tests.daemon.daemon_process import HANG_SECONDS, until
from tests.daemon.directories import bytes_on_disk, fill, names_on_disk
from tests.daemon.keepers import CAP, LOW


class Blocking:
    """A part whose tick takes as long as it is asked to."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.began = threading.Event()
        self.error: Exception | None = None

    def tick(self) -> None:
        self.began.set()
        assert self.may_go_on.wait(HANG_SECONDS)
        if self.error is not None:
            raise self.error

    def status_fields(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        self.may_go_on.set()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Keeper]]:
    monkeypatch.setattr(ticks, "_PATIENCE_SECONDS", 0.02)
    stop, made = StopSignals(), []

    def start(name: str, rules: Rules, *parts: Blocking) -> Keeper:
        report = Report(as_json=True, out=io.StringIO(), err=io.StringIO())
        makers = [lambda _, part=part: part for part in parts]
        made.append(Keeper(str(tmp_path / name), rules, report, stop, makers))
        made[-1].open()
        return made[-1]

    yield start
    for keeper in made:
        keeper.close()
    with stop:
        pass  # closes its sockets


@pytest.mark.slow
def test_a_tick_that_takes_long_does_not_hold_up_the_others(tmp_path: Path, make: Callable[..., Keeper]) -> None:
    part = Blocking()
    slow, quick = make("slow", Rules(CAP), part), make("quick", Rules(CAP))
    with TickRunner() as runner:
        runner.run(slow, is_alone=False)
        assert part.began.wait(HANG_SECONDS)
        assert list(runner.busy) == [slow]
        for first in (0, 1000):
            fill(tmp_path / "quick", 200, 10_000, first=first)
            until(lambda: runner.run(quick, is_alone=False) is None and quick not in runner.busy)
            until(lambda: bytes_on_disk(tmp_path / "quick") <= LOW)
            runner.run(slow, is_alone=False)
            assert slow in runner.busy
        part.may_go_on.set()
        until(lambda: runner.run(slow, is_alone=False) is None and slow not in runner.busy)


def test_a_directory_that_is_busy_counts_for_the_total_and_loses_nothing(
    tmp_path: Path, make: Callable[..., Keeper]
) -> None:
    part = Blocking()
    fill(tmp_path / "slow", 100, 10_000)
    fill(tmp_path / "quick", 100, 10_000, first=1000)
    slow, quick = make("slow", Rules(), part), make("quick", Rules())
    settings, shared = Settings(total=1_500_000), SharedBudgets()
    shared.tick(Settings(total=10**9), [slow, quick])
    with TickRunner() as runner:
        quick.tick()
        runner.run(slow, is_alone=False)
        assert part.began.wait(HANG_SECONDS)
        shared.tick(settings, [slow, quick], runner.busy)
        assert len(names_on_disk(tmp_path / "slow")) == 100
        assert len(names_on_disk(tmp_path / "quick")) == 35
        part.may_go_on.set()


def test_a_directory_alone_is_waited_for_in_the_main_thread(make: Callable[..., Keeper]) -> None:
    part = Blocking()
    part.may_go_on.set()
    keeper = make("only", Rules(CAP), part)
    before = threading.active_count()
    with TickRunner() as runner:
        runner.run(keeper, is_alone=True)
        assert (threading.active_count(), list(runner.busy)) == (before, [])


def test_a_signal_that_ends_a_tick_beside_the_others_ends_the_daemon(make: Callable[..., Keeper]) -> None:
    part = Blocking()
    part.error = Stopped("SIGTERM")
    slow = make("slow", Rules(CAP), part)
    with TickRunner() as runner:
        runner.run(slow, is_alone=False)
        part.may_go_on.set()
        with pytest.raises(Stopped):
            until(lambda: runner.run(slow, is_alone=False) is None and slow not in runner.busy)

# SPDX-License-Identifier: Apache-2.0
"""Several daemons for one directory: one keeps it, the others take over when it dies, and never two at once."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from lockcache.filestream.disk.layout import Layout
from lockcache_daemon.keeper.single_instance import Instance
from tests.daemon.daemon_process import RunningDaemon, until
from tests.daemon.directories import bytes_on_disk, fill
from tests.daemon.pyptx_crowd import store

HIGH = 950_000


def standby(*arguments: object) -> RunningDaemon:
    return RunningDaemon("--max-size", "1M", "--standby", *arguments, starts=0)


def status_of(root: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((root / "lockcache" / "daemon.json").read_bytes())
    return status


@pytest.mark.parametrize("interval", ["50ms", pytest.param("1h", marks=pytest.mark.long)])
def test_a_standby_takes_over_when_the_first_is_killed_and_keeps_the_directory(cache_path: Path, interval: str) -> None:
    with RunningDaemon("--max-size", "1M", cache_path) as first, standby("--interval", interval, cache_path) as second:
        assert second.wait_for("standby")["holder"]["pid"] == first.process.pid
        first.end(signal.SIGKILL)
        second.wait_for("takeover")  # with checks an hour apart, by the death alone
        assert status_of(cache_path)["pid"] == second.process.pid
        if interval != "1h":  # it takes over between two checks, and sweeps at the next
            fill(cache_path, 200, 10_000)
            until(lambda: bytes_on_disk(cache_path) <= HIGH)
        assert second.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_signal_ends_one_that_waits_and_leaves_the_first_alone(cache_path: Path) -> None:
    with RunningDaemon("--max-size", "1M", cache_path) as first, standby(cache_path) as second:
        second.wait_for("standby")
        assert second.end(signal.SIGTERM) == 0
        assert status_of(cache_path)["pid"] == first.process.pid
        assert first.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_each_directory_is_taken_over_by_itself_whatever_its_layout(tmp_path: Path) -> None:
    ours, theirs, free = tmp_path / "ours", tmp_path / "theirs", tmp_path / "free"
    store(theirs, range(3))
    with (
        RunningDaemon("--max-size", "1M", ours) as one,
        RunningDaemon("--max-size", "1M", theirs) as other,
        standby(ours, theirs, free) as second,
    ):
        waits = {second.wait_for("standby")["directory"] for _ in range(2)}
        assert waits == {str(ours), str(theirs)}
        assert second.wait_for("start")["directory"] == str(free)
        other.end(signal.SIGKILL)
        taken = second.wait_for("takeover")
        assert taken["directory"] == str(theirs)
        assert status_of(theirs)["layout"] == "pyptx"
        assert status_of(ours)["pid"] == one.process.pid
        one.end(signal.SIGTERM)  # an end in good order is one too
        assert second.wait_for("takeover")["directory"] == str(ours)


@pytest.mark.long
def test_one_that_lost_its_directory_to_another_stands_by_for_it(cache_path: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "lockcache").mkdir(parents=True, mode=0o700)
    another = Instance(Layout(str(tmp_path / "other")))
    another.acquire()
    with standby(cache_path) as first:
        first.wait_for("start")
        first.process.send_signal(signal.SIGSTOP)  # or it might make the directory again in between
        cache_path.rename(tmp_path / "old")
        (tmp_path / "other").rename(cache_path)
        first.process.send_signal(signal.SIGCONT)
        first.wait_for("standby")
        another.release()
        first.wait_for("takeover")
        assert first.end(signal.SIGTERM) == 0

# SPDX-License-Identifier: Apache-2.0
"""The board: what the daemon knows of itself, and the hour that it remembers."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

import pytest

from lockcache.filestream.accounting.state import Slot
from lockcache_daemon.observe.board import Board, Limits
from lockcache_daemon.observe.history import Sample, rates, recorded
from tests.daemon.daemon_process import RunningDaemon, run_daemon


def sample(time: float, evicted: int = 0, hits: int = 0) -> Sample:
    return Sample(time, 100, 1000, 1, evicted, evicted, hits, 0)


def test_an_hour_is_kept_and_the_newest_sample_is_of_this_moment() -> None:
    history: tuple[Sample, ...] = ()
    for tick in range(20_000):
        history = recorded(history, sample(tick * 0.5))
    assert history[-1].time == 19_999 * 0.5
    assert len(history) <= 242
    assert 3570 <= history[-1].time - history[0].time <= 3630
    gaps = {after.time - before.time for before, after in itertools.pairwise(history[:-1])}
    assert gaps == {15.0}


def test_a_clock_that_was_set_back_begins_anew() -> None:
    history = recorded(recorded((), sample(100)), sample(200))
    assert recorded(history, sample(50)) == (sample(50),)


def test_what_happened_between_samples_is_a_difference_and_a_total_that_fell_counts_from_zero() -> None:
    first, second = rates((sample(0, 10, 5), sample(15, 30, 9), sample(30, 30, 2)))
    assert (first.evicted_bytes, first.hits) == (20, 4)
    assert (second.evicted_bytes, second.hits) == (0, 2)


def test_what_fails_is_a_problem_until_it_works_again_and_each_failure_counts() -> None:
    board = Board()
    board.failed("/a", "broken")
    (first,) = board.directories
    board.failed("/a", "more broken")
    (view,) = board.directories
    assert (view.errors, view.problem, view.problem_since) == (2, "more broken", first.problem_since)
    assert board.problems() == ["/a: more broken"]
    board.recovered("/a")
    assert board.problems() == []
    assert board.directories[0].errors == 2


def test_a_directory_that_is_let_go_of_is_forgotten() -> None:
    board = Board()
    board.measured("/a", Slot(1, 1), Limits())
    board.let_go("/a")
    assert board.directories == []


@pytest.mark.slow
def test_every_line_of_the_json_log_has_a_time_a_level_an_event_and_a_directory(
    cache_path: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    with RunningDaemon("--max-size", "1M", cache_path, broken, starts=2) as daemon:
        usage = broken / "lockcache" / "state"
        usage.unlink()
        usage.mkdir()
        error = daemon.wait_for("error")
        usage.rmdir()
        recovered = daemon.wait_for("recovered")
        daemon.process.terminate()
        stop = daemon.wait_for("stop")
    for said, level, directory in (
        (error, "error", str(broken)),
        (recovered, "info", str(broken)),
        (stop, "info", None),
    ):
        assert (said["level"], said["directory"]) == (level, directory)
        assert said["time"].startswith("20")


@pytest.mark.slow
@pytest.mark.parametrize("switch", [["--json"], []], ids=["flag", "variable"])
def test_what_makes_a_start_impossible_is_an_event_too(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, switch: list[str]
) -> None:
    if not switch:
        monkeypatch.setenv("LOCKCACHE_JSON", "yes")
    ended = run_daemon("--max-size", "ten", *switch, cache_path)
    (said,) = map(json.loads, ended.stdout.splitlines())
    assert (said["level"], said["event"], said["directory"], said["exit_code"]) == ("error", "refused", None, 2)
    assert ended.stderr == f"lockcache-daemon: {said['message']}\n"
    assert ended.returncode == 2
    assert not os.path.exists(cache_path)


def test_a_directory_whose_step_hangs_is_a_problem_though_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    board, clock = Board(), [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    board.measured("/well", Slot(1, 1), Limits())
    board.measured("/hangs", Slot(1, 1), Limits())
    with board.at_work("/hangs"):
        for _ in range(4):  # a long sweep gives signs
            clock[0] += 30
            board.beat()
            board.beat_of("/hangs")
            assert board.problems() == []
        for _ in range(3):
            clock[0] += 30
            board.beat()
            board.beat_of("/well")
        assert board.problems() == ["/hangs: no progress for 90 s, a step hangs"]
    assert board.problems() == []

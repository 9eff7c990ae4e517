# SPDX-License-Identifier: Apache-2.0
"""A long run is a run in rounds: each judged whole, and what one of them finds is found by the run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.judge.operations import load_histories
from lockcache_stress.plan import Scenario, Step
from lockcache_stress.run.counters import COUNTED, Latencies
from lockcache_stress.run.outcome import Check, Outcome
from lockcache_stress.run.rounds import cut, run_rounds
from lockcache_stress.run.sampler import Peaks
from lockcache_stress.run.session import Options, run_bytes
from lockcache_stress.run.worker import Worker
from lockcache_stress.scenarios.registry import BYTE_SCENARIOS, TROUBLE_SCENARIOS
from lockcache_stress.trouble.faults import plant
from tests.stress.support import make_plan

SEED = 7
BY_NAME = {scenario.name: scenario for scenario in (*BYTE_SCENARIOS, *TROUBLE_SCENARIOS)}


def silent(stage: str, share: float, words: str) -> None:
    """Nobody watches."""


@pytest.fixture(autouse=True)
def _temporary_files_there(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(run_path))


def run(scenario: str | Scenario, rounds: int = 3, seconds: float = 1.0, **options: Any) -> Outcome:
    found = BY_NAME[scenario] if isinstance(scenario, str) else scenario
    given = Options(2, rounds * seconds, found.max_size_bytes, SEED, round_seconds=seconds, **options)
    return run_bytes(found, given, silent)


def failed(outcome: Outcome) -> set[str]:
    return {check.name for check in outcome.checks() if not check.ok}


def value(outcome: Outcome, name: str) -> Check:
    (check,) = (check for check in outcome.checks() if check.name == name)
    return check


# ---- how a run is cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds, count", [(0.1, 1), (59.9, 1), (60, 1), (60.1, 2), (120, 2), (121, 3), (3600, 60)])
def test_rounds_are_of_equal_length_none_too_long_and_replayed_by_the_run_s_seed(seconds: float, count: int) -> None:
    rounds = cut(seconds, SEED, 60.0)
    assert [each.number for each in rounds] == list(range(1, count + 1))
    assert {each.of for each in rounds} == {count}
    assert sum(each.seconds for each in rounds) == pytest.approx(seconds)
    assert len({each.seconds for each in rounds}) == 1
    assert rounds[0].seconds <= 60
    assert rounds[0].seed == SEED, "a run of one round is that round"
    assert len({each.seed for each in rounds}) == count
    assert rounds == cut(seconds, SEED, 60.0)
    assert sorted(each.folder for each in rounds) == [each.folder for each in rounds]


# ---- how outcomes are put together, without processes ----------------------------------------------------------------


def made(tmp_path: Path, **changes: Any) -> Outcome:
    outcome = Outcome(make_plan(tmp_path), seconds=1.5)
    outcome.totals = dict.fromkeys(COUNTED, 0) | {"operations": 10, "hits": 5, "puts": 5}
    outcome.peaks.samples = 1
    for name, changed in changes.items():
        if name in COUNTED:
            outcome.totals[name] = changed
        else:
            setattr(outcome, name, changed)
    return outcome


def together(*outcomes: Outcome, fail_fast: bool = False) -> Outcome:
    waiting = iter(outcomes)
    rounds = cut(len(outcomes), SEED, 1.0)
    return run_rounds(rounds, lambda each, show: next(waiting), silent, fail_fast=fail_fast)


def test_counts_are_summed_peaks_are_the_highest_and_latencies_are_those_of_all(tmp_path: Path) -> None:
    slow, quick = Latencies({"500": 2}), Latencies({"400": 3})
    high, low = Peaks(samples=4, disk_bytes=900, final_bytes=10), Peaks(samples=5, disk_bytes=100, final_bytes=20)
    one = made(tmp_path, operations=100, longest_wait_us=5, kills=1, peaks=high, gets=slow)
    two = made(tmp_path, operations=20, longest_wait_us=4, kills=2, peaks=low, gets=quick)
    outcome = together(one, two)
    assert outcome.ok
    assert (outcome.totals["operations"], outcome.totals["longest_wait_us"], outcome.kills) == (120, 5, 3)
    assert (outcome.peaks.samples, outcome.peaks.disk_bytes, outcome.peaks.final_bytes) == (9, 900, 20)
    assert outcome.gets.as_json() == {"500": 2, "400": 3}
    assert (outcome.seconds, outcome.plan.seconds, outcome.plan.seed) == (3.0, 2.0, 1)
    assert "2 rounds" in outcome.title


def test_what_must_be_something_must_be_so_in_all_rounds_and_shows_the_worst(tmp_path: Path) -> None:
    one, two, three = made(tmp_path, operations=100), made(tmp_path, operations=20), made(tmp_path, torn=2)
    one.extra_checks = [Check("sweeps", "12"), Check("drift", "0 bytes", "0"), Check("asked", "yes", "yes")]
    two.extra_checks = [Check("sweeps", "1,300"), Check("drift", "-40 bytes", "0", False), Check("asked", "yes", "yes")]
    three.extra_checks = [
        Check("sweeps", "7"),
        Check("drift", "3 bytes", "0", False),
        Check("asked", "no", "yes", False),
    ]
    outcome = together(one, two, three)
    assert failed(outcome) == {"torn", "drift", "asked"}
    assert value(outcome, "operations") == Check("operations", "130; worst 10, round 3", "> 0", True)
    assert value(outcome, "torn") == Check("torn", "2, round 3", "0", False)
    assert value(outcome, "foreign").value == "0"
    assert value(outcome, "drift").value == "-40 bytes, round 2"
    assert value(outcome, "asked").value == "no, round 3"
    assert value(outcome, "sweeps") == Check("sweeps", "1,300, round 2")
    assert value(outcome, "misses").value == "0"
    assert value(outcome, "rounds") == Check("rounds", "3 of 3", "3", True)


# ---- real runs -------------------------------------------------------------------------------------------------------


def stale_in_the_last_round(worker: Worker) -> Step:
    """The same key, and a cache that gives older values, but only where the seed is the third round's."""
    if worker.plan.seed == cut(3.0, SEED, 1.0)[2].seed:
        worker.cache = plant(replace(worker.plan, plant="stale"), worker.writer, worker._real)
    return BY_NAME["same-key"].make_step(worker)


@pytest.mark.long
def test_a_bug_that_strikes_in_a_later_round_only_fails_the_run_and_is_drawn(run_path: Path) -> None:
    kept = run_path / "kept"
    scenario = replace(BY_NAME["same-key"], make_step=stale_in_the_last_round)
    outcome = run(scenario, histories=str(kept))
    assert not outcome.ok
    assert failed(outcome) >= {"stale", "illegal histories"}
    assert [each["ok"] for each in outcome.rounds] == [True, True, False]
    assert value(outcome, "stale").value == f"{outcome.totals['stale']}, round 3"
    assert outcome.findings[0]["error"].startswith("round 3: the history of key 0 is illegal")
    assert {finding["round"] for finding in outcome.findings} == {3}
    assert outcome.histories is not None
    assert (outcome.histories.illegal, outcome.histories.smallest_in) == ([0], "round 3")
    assert sorted(os.listdir(kept)) == ["round-1", "round-2", "round-3"]
    assert (kept / "round-3" / "illegal-key-0.html").exists()
    recorded = sum(len(each) for name in os.listdir(kept) for each in load_histories(str(kept / name)).values())
    assert recorded == outcome.histories.operations


# ---- as a user runs it -----------------------------------------------------------------------------------------------

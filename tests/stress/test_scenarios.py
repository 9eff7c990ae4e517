# SPDX-License-Identifier: Apache-2.0
"""Scenarios, as a user runs them, for two seconds: nothing torn, stale or foreign, and the cap holds.

``make stress`` runs all of them every night; here are those of which each other one is a variant.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache_stress.judge.histories import judge_histories
from lockcache_stress.judge.operations import load_histories
from lockcache_stress.scenarios.registry import BYTE_SCENARIOS
from tests.matrix_sampling import all_but
from tests.stress.support import failed_checks, stress, stress_json

# Their seconds are only a limit: they have so much to do, however busy the machine is.
END_BY_THEMSELVES = {scenario.name for scenario in BYTE_SCENARIOS if scenario.ends_by_itself}


@pytest.mark.parametrize(
    "name", all_but(["kill", "overshoot"], ["same-key", "kill", "overshoot", "single-flight", "takeover"])
)
def test_a_byte_scenario_finds_nothing_wrong(name: str, run_path: Path) -> None:
    seconds = "60" if name in END_BY_THEMSELVES else "2"
    report = stress_json(name, "--processes", "4", "--seconds", seconds, "--seed", "1", run_path=run_path)
    assert report["ok"]
    assert report["operations"] > 0
    assert report["hits"] > 0
    assert (report["torn"], report["stale"], report["foreign"], report["worker_deaths"]) == (0, 0, 0, [])
    assert 0 < report["peak_bytes"] <= report["cap_bytes"]
    assert report["samples"] > 1
    histories = report["histories"]
    assert (histories["illegal"], histories["unknown"]) == ([], [])
    # Each read that hit or missed, and each write, is an operation of some key's history; evictions come on top.
    assert histories["operations"] >= report["hits"] + report["misses"] + report["puts"]
    assert os.listdir(run_path) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, expected",
    [
        ("stale", {"stale", "illegal histories"}),
        ("crash", {"worker deaths"}),
        ("overshoot", {"peak over cap", "bytes unaccounted for"}),
    ],
)
def test_a_planted_fault_is_found_and_said(fault: str, expected: set[str], run_path: Path) -> None:
    words = ("same-key", "--processes", "2", "--seconds", "60", "--seed", "3", "--plant", fault, "--fail-fast")
    report = stress_json(*words, run_path=run_path, code=1)
    assert not report["ok"]
    assert expected <= failed_checks(report)
    assert report["replay"][:2] == ["lockcache-stress", "same-key"]
    assert report["replay"][report["replay"].index("--seed") + 1] == "3"


@pytest.mark.long
def test_histories_are_left_where_the_user_wants_them_and_an_illegal_one_is_drawn(run_path: Path) -> None:
    kept = run_path / "kept"
    words = ("same-key", "--processes", "2", "--seconds", "60", "--plant", "stale", "--fail-fast")
    ran = stress(*words, "--histories", str(kept), run_path=run_path)
    assert ran.returncode == 1
    assert '"verdict": "stale"' in ran.stdout
    assert "replay: lockcache-stress same-key --processes 2" in ran.stdout
    assert "the history of key 0 is illegal" in ran.stdout
    assert "<-- cannot be" in ran.stdout
    assert "cannot have ended as it did" in (kept / "illegal-key-0.html").read_text()
    assert judge_histories(load_histories(str(kept))).illegal == [0]

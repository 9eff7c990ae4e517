# SPDX-License-Identifier: Apache-2.0
"""Scenarios in which the surroundings fail, as a user runs them, for two seconds. ``make stress`` runs all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.scenarios.registry import TROUBLE_SCENARIOS
from tests.matrix_sampling import all_but
from tests.stress.support import stress_json

REASONS = {scenario.name: scenario.why_not() for scenario in TROUBLE_SCENARIOS}


def run(name: str, run_path: Path, *words: str, code: int = 0) -> Any:
    if REASONS[name] is not None:
        pytest.skip(REASONS[name])
    return stress_json(name, "--seconds", "2", "--seed", "1", *words, run_path=run_path, code=code)


@pytest.mark.parametrize("name", all_but(["disk-full"], ["disk-full", "io-errors", "interrupts", "mixed"]))
def test_a_scenario_of_trouble_finds_nothing_wrong(name: str, run_path: Path) -> None:
    report = run(name, run_path)
    assert report["ok"]
    assert (report["torn"], report["stale"], report["foreign"], report["worker_deaths"]) == (0, 0, 0, [])
    assert (report["histories"]["illegal"], report["histories"]["unknown"]) == ([], [])
    assert report["hits"] > 0
    assert report["puts"] > 0
    assert os.listdir(run_path) == [], "nothing is left, no mount either"

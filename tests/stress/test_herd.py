# SPDX-License-Identifier: Apache-2.0
"""The herd with the real compiler, as a user runs it: many processes, each kernel compiled once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache_stress.experiments.herd_member import HerdOptions, HerdPlan
from tests.matrix_sampling import EXHAUSTIVE
from tests.stress.support import failed_checks, stress_json

_SMALL = ("herd", "--processes", "3", "--kernels", "2", "--seed", "1")
_PHASES = ("cold", "changed")


@pytest.mark.cuda
def test_each_kernel_is_compiled_once_and_once_more_after_a_header_has_changed(run_path: Path) -> None:
    kept = run_path / "kept"
    report = stress_json(*_SMALL, "--directory", str(kept), run_path=run_path)
    assert report["ok"]
    assert [phase["phase"] for phase in report["phases"]] == list(_PHASES)
    assert {phase["is_spread"] for phase in report["phases"]} == {False, True}
    for phase in report["phases"]:
        assert (phase["compiles"], phase["hits"], phase["calls"]) == (2, 4, 6)
        assert (phase["stale"], phase["wrong"], phase["wrong_mappings"]) == (0, 0, 0)
    assert (report["entries"], report["lease_files"], report["worker_deaths"]) == (4, 0, [])
    assert report["herd_over_alone"] > 0
    assert os.listdir(run_path) == ["kept"]


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.parametrize(
    "fault, expected",
    [
        ("leases", {"compiles == distinct kernels"}),
        pytest.param("stale", {"stale cubins", "compiles == distinct kernels"}, marks=EXHAUSTIVE),
        pytest.param("mapping", {"wrong symbol mappings"}, marks=EXHAUSTIVE),
        ("crash", {"worker deaths", "programs got"}),
    ],
)
def test_a_planted_fault_is_found_and_said(fault: str, expected: set[str], run_path: Path) -> None:
    report = stress_json(*_SMALL, "--plant", fault, run_path=run_path, code=1)
    assert expected <= {name.split(": ")[-1] for name in failed_checks(report)}
    assert report["replay"][:2] == ["lockcache-stress", "herd"]
    assert report["replay"][-2:] == ["--plant", fault]
    if fault == "crash":  # the survivors get every kernel
        assert len(report["worker_deaths"]) == 1
        assert [(phase["calls"], phase["wrong"]) for phase in report["phases"]] == [(4, 0), (4, 0)]
    assert os.listdir(run_path) == []


def test_one_phase_begins_alike_and_the_other_does_not_whatever_the_seed(tmp_path: Path) -> None:
    spread_first = set()
    for seed in range(20):
        plan = HerdPlan(HerdOptions(8, 8, seed), str(tmp_path), str(tmp_path))
        orders = [{tuple(plan.order(phase, index)) for index in range(8)} for phase in (0, 1)]
        assert sorted(len(found) > 1 for found in orders) == [False, True]
        assert all(sorted(order) == list(range(8)) for found in orders for order in found)
        spread_first.add(plan.is_spread(0))
    assert spread_first == {False, True}

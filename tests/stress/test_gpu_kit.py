# SPDX-License-Identifier: Apache-2.0
"""The GPU kit as a user runs it where there is no GPU, and what it says of faults that are planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lockcache_stress.experiments.gpu_kit import eviction, first_hit, member, symbols, timing
from lockcache_stress.gpu.kernels import LAUNCHED
from tests.stress.reports import Page, assert_is_junit
from tests.stress.support import environment, failed_checks

_REPOSITORY = Path(__file__).parents[2]
_ROWS = ["nvrtc", "templates", "lto-ir", "cold-start", "eviction", "timing", "first-hit"]
_SHARED = ["cupy", "triton", "jax", "numba-cuda", "cute", "cutile", "inductor"]
_FRAMEWORKS = ["cupy", "triton", "jax", *(f"{name}-shared" for name in _SHARED)]


def run_kit(run_path: Path, *words: str, code: int = 0, timeout: float = 110) -> dict[str, Any]:
    """Run it from the checkout, with no GPU and no console script in sight; what it left as JSON."""
    command = [sys.executable, "-m", "lockcache_stress", "gpu", *words, "--out", str(run_path / "out")]
    given = environment(run_path) | {"PYTHONPATH": ".:daemon:stress", "PATH": "/nowhere", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        command, env=given, cwd=_REPOSITORY, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert os.listdir(run_path) == ["out"]
    found: dict[str, Any] = json.loads((run_path / "out" / "gpu.json").read_text())
    return found


def by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {row["row"]: row for row in report["rows"]}


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.timeout(300)
def test_without_a_gpu_all_but_the_launches_is_done_from_a_checkout(run_path: Path) -> None:
    # Twenty seconds of a core, whatever is asked for: to load NVRTC takes one in each process, and all rows have some.
    report = run_kit(run_path, "--seconds", "0.5", "--processes", "1", "--seed", "1", timeout=280)
    done = by_name(report)
    assert (report["ok"], report["gpu"], report["machine"]["GPU"]) == (True, False, "none")
    assert [*done][: len(_ROWS)] == _ROWS
    assert {*done, *report["not_run"]} == {*_ROWS, *_FRAMEWORKS}
    assert all((row["launches"], row["wrong"]) == (None, 0) for row in done.values())
    assert (done["templates"]["compiles"], done["lto-ir"]["compiles"]) == (4, 6)
    assert done["timing"]["outcome"]["ratio"] > 1
    assert (done["first-hit"]["compiles"], done["first-hit"]["outcome"]["hits"]) == (8, 6)
    printed = (run_path / "out" / "gpu.txt").read_text()
    assert all(name in printed for name in [*_ROWS, *_FRAMEWORKS])
    assert "no GPU: nothing was launched" in printed
    page = Page((run_path / "out" / "gpu.html").read_text())
    assert page.outcome["machine"]["cuda-core"] == report["machine"]["cuda-core"] != "not installed"
    document = ET.parse(run_path / "out" / "gpu.xml").getroot()
    assert_is_junit(document)
    assert {str(suite.get("name")).partition(":")[0] for suite in document} == {*_ROWS, *_FRAMEWORKS}


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.parametrize(
    "row, fault, failed",
    [
        ("templates", "mapping", "wrong mappings, bytes or results"),
        ("nvrtc", "torn", "torn"),
    ],
)
def test_a_planted_fault_is_exit_code_1_and_said_in_its_row(row: str, fault: str, failed: str, run_path: Path) -> None:
    report = run_kit(run_path, row, "--plant", fault, "--seconds", "1", "--processes", "2", "--seed", "1", code=1)
    [found] = report["rows"]
    assert failed in failed_checks(found["outcome"])
    assert found["wrong"] > 0
    assert not report["ok"]
    assert report["replay"][-2:] == ["--plant", fault]
    assert "NO" in (run_path / "out" / "gpu.txt").read_text()


class _WrongLauncher:
    """In the place of a GPU: loads everything and computes nothing right."""

    def load(self, code: Any, name: str) -> str:
        return name

    def run(self, kernel: str) -> list[int]:
        return [0] * LAUNCHED


@pytest.mark.cuda
@pytest.mark.parametrize(
    "work, phase, launches",
    [
        (symbols._get_by_name, 1, 12),
        (symbols._link_all, 1, 3),
        (eviction._work, 0, 8),
        (timing._work, 0, 12),
        (first_hit._work, 0, 2),
    ],
)
def test_what_a_gpu_computes_wrong_is_counted_at_every_launch(
    work: Any, phase: int, launches: int, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "Launcher", _WrongLauncher)
    task = member.Task(work, str(run_path), "sm_90", True, 0.0, 1, None, "token")
    alone = member.Member(task, 0)
    work(alone, phase)
    assert (alone.answer.counts["launches"], alone.answer.counts["wrong"]) == (launches, launches)
    assert "computed other numbers" in alone.answer.findings[0]

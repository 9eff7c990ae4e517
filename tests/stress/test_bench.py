"""The benchmark runs, prints what must hold beside what is, and fails where it does not hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockcache_stress import bench, commands
from lockcache_stress.bench.base import Bench, Line, ratio_line
from tests.stress.support import stress, stress_json

_NAMES = ["hit", "miss", "put", "put-full", "open", "overshoot", "import", "damage", "syscalls"]


def test_every_measurement_has_a_name() -> None:
    assert list(bench.MEASUREMENTS) == _NAMES


def test_a_quick_run_measures_everything_and_names_the_machine(run_path: Path) -> None:
    report = stress_json("bench", "--quick", "--no-fail", run_path=run_path)
    assert {"cpu", "kernel", "python", "file system", "lockcache"} <= set(report["machine"])
    bars = {line["bar"] for line in report["lines"]}
    assert {"<= 2x", "<= 1.5x", "< 50 ms", "0"} <= bars
    damage = [line for line in report["lines"] if line["name"].startswith("damaged entries served")]
    assert len(damage) == 5
    assert all(line["ok"] for line in damage)
    assert os.listdir(run_path) == []


@pytest.mark.cuda
def test_cuda_core_stands_beside_with_the_bars_that_compare(run_path: Path) -> None:
    report = stress_json("bench", "--quick", "--no-fail", "hit", "miss", "put", run_path=run_path)
    assert [line["bar"] for line in report["lines"]] == [">= 2.5x", ">= 3x", ">= 4x"]
    assert all(line["theirs"] and line["ratio"] for line in report["lines"])


def test_a_directory_can_be_named_and_is_left_as_it_was(run_path: Path) -> None:
    ran = stress("bench", "--quick", "--no-fail", "damage", "--directory", str(run_path / "there"), run_path=run_path)
    assert ran.returncode == 0
    assert "one bit flipped" in ran.stdout
    assert os.listdir(run_path / "there") == []


@pytest.mark.parametrize("words, code", [(["hit"], 1), (["hit", "--no-fail"], 0)])
def test_a_bar_that_is_missed_is_exit_code_1_unless_told_not_to_fail(
    words: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def too_slow(_: Bench) -> list[Line]:
        return [ratio_line("hit", {"ours": 10.0, "theirs": 11.0}, 2.5)]

    monkeypatch.setitem(bench.MEASUREMENTS, "hit", too_slow)
    monkeypatch.setattr("sys.argv", ["lockcache-stress", "bench", "--json", *words])
    assert commands.run_command_line() == code
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_without_cuda_core_a_ratio_has_no_bar_to_miss() -> None:
    line = ratio_line("hit", {"ours": 10.0, "floor": 2.0}, 2.5)
    assert (line.bar, line.ok, line.theirs) == ("", True, "")

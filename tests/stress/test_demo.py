# SPDX-License-Identifier: Apache-2.0
"""``make demo``: the same work without a cache and with it, on one screen; and what is installed for it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lockcache_stress.commands.demo import page
from lockcache_stress.experiments.demo import DemoOutcome, DemoPlan, Kept, Start
from lockcache_stress.experiments.demo.member import Answer
from tests.stress.support import stress_json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PROJECT = Path(__file__).parents[2]


@pytest.mark.cuda
@pytest.mark.long
def test_each_kernel_is_compiled_once_with_the_cache_and_by_each_process_without(run_path: Path) -> None:
    words = ("demo", "--processes", "2", "--kernels", "3", "--seconds", "1", "--seed", "1")
    report = stress_json(*words, run_path=run_path)
    assert [start["compiles"] for start in report["starts"]] == [6, 6, 3, 0]
    assert (report["ok"], report["wrong"]) == (True, 0)
    [kept] = report["kept"]
    assert 0 < kept["peak_bytes"] <= kept["cap_bytes"]
    assert report["results"] == 24 + kept["requests"]
    assert not list(run_path.iterdir())


def _outcome(compiles: tuple[int, int, int, int], digest: str = "a", peak_bytes: int = 99_000_000) -> DemoOutcome:
    got = [(number, "a") for number in range(999)]
    starts = [
        Start(f"start {number}", number > 1, [Answer(0, got, count, 1234.5 if number < 2 else 0.01, 9999.9)])
        for number, count in enumerate(compiles)
    ]
    kept = Kept(
        [Answer(0, [(0, digest)] * 999_999, 99_999, 8.0, 1.0)], 100_000_000, peak_bytes, 99_999, 99_999, 99_999, ""
    )
    return DemoOutcome(DemoPlan(8, 999, 0, 8.0), dict.fromkeys(range(999), "a"), starts, [kept])


def test_the_page_is_twenty_lines_of_eighty_columns_with_the_largest_figures_too() -> None:
    lines = page(_outcome((7992, 7992, 999, 0)))
    assert len(lines) + 3 <= 20  # what the command says first
    assert max(map(len, lines)) <= 80, max(lines, key=len)


def test_it_fails_for_other_bytes_a_second_compilation_or_a_cap_that_is_exceeded() -> None:
    assert _outcome((7992, 7992, 999, 0)).ok
    assert not _outcome((7992, 7992, 1000, 0)).ok
    assert not _outcome((7992, 7992, 999, 1)).ok
    assert not _outcome((7992, 7992, 999, 0), peak_bytes=100_000_001).ok
    wrong = _outcome((7992, 7992, 999, 0), digest="b")
    assert not wrong.ok
    assert any(line.startswith("WRONG: 999,999 of ") for line in page(wrong))


def test_it_installs_what_the_package_asks_for_and_nothing_to_develop_with() -> None:
    project = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [line for line in (_PROJECT / "stress/demo/demo.txt").read_text().splitlines() if not line.startswith("#")]
    assert set(project["dependencies"]) <= set(asked)
    known = {*project["dependencies"], *extras["cuda"], *extras["cli"]}
    assert {line for line in asked if line not in known} == {"cuda-bindings>=13.4,<14"}  # a part of cuda-python
    assert "cuda-python>=13.4,<14" in known
    names = {re.split("[>=;]", line)[0] for line in asked}
    assert not names & {"pytest", "ruff", "mypy", "matplotlib"}

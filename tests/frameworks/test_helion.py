# SPDX-License-Identifier: Apache-2.0
"""Helion's autotuner on lockcache: each kernel tuned once, and nobody waits for one who failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.support import Programs, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KERNELS = range(4)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs("helion", tmp_path)


def test_a_herd_tunes_each_kernel_once_and_a_warm_process_none(programs: Programs) -> None:
    for tuned in (len(KERNELS), 0):
        answers = programs.run(4, KERNELS)
        assert [(found["wrong"], found["failed"], found["is_installed"]) for found in answers] == [(0, 0, True)] * 4
        assert total(answers, "compiled") == tuned


def test_where_tuning_fails_the_next_one_has_its_own_error(programs: Programs) -> None:
    answers = programs.run(2, [-1])
    assert total(answers, "failed") == 2
    assert {found["error"] for found in answers} == {"RuntimeError: no configuration works"}


def test_a_damaged_entry_is_tuned_again(programs: Programs) -> None:
    programs.run(1, KERNELS)
    for path in (programs.directory / "entries").glob("??/*"):
        path.write_bytes(b"{" + path.read_bytes()[1:-3])
    assert total(programs.run(2, KERNELS), "compiled") == len(KERNELS)


@pytest.mark.parametrize("command", [["run", "-q", "--"], None], ids=["run", "env"])
def test_without_a_line_of_code_helion_asks_lockcache(command: list[str] | None, programs: Programs) -> None:
    lockcache = [sys.executable, "-m", "lockcache"]
    variables = {}
    if command is None:
        said = subprocess.run([*lockcache, "env", "helion"], check=True, capture_output=True, text=True).stdout
        exports = [line.removeprefix("export ").partition("=") for line in said.splitlines()]
        variables = {name: value.strip("'") for name, _, value in exports if name.startswith("HELION_")}
        assert len(variables) == 2
    for tuned in (len(KERNELS), 0):
        prefix = [] if command is None else [*lockcache, *command]
        [found] = programs.run(1, KERNELS, "own", prefix=prefix, **variables)
        assert (found["failed"], found["wrong"], found["compiled"]) == (0, 0, tuned)


def test_a_cache_that_the_program_chose_is_left_alone(programs: Programs) -> None:
    [found] = programs.run(1, [], HELION_AUTOTUNE_CACHE="StrictLocalAutotuneCache")
    assert not found["is_installed"]
    assert "HELION_AUTOTUNE_CACHE is StrictLocalAutotuneCache" in programs.errors.read_text()

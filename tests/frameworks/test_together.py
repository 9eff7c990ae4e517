# SPDX-License-Identifier: Apache-2.0
"""Two frameworks in one program under ``lockcache run``: what the first process compiled, the second one finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.support import PROGRAMS, ROOT, Programs, site_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def _run(programs: Programs) -> tuple[dict[str, int], str]:
    """Returns what a program compiled under ``lockcache run``, and what that printed at its end."""
    command = [sys.executable, "-m", "lockcache", "run", "--max-size", "1G", "--", programs.python]
    # What JAX stores is for lockcache run to say.
    environment = programs.environment({"PYTHONPATH": f"{ROOT}:{site_of('triton')}"})
    ended = subprocess.run(
        [*command, PROGRAMS / "triton_and_jax.py"],
        env={name: value for name, value in environment.items() if not name.startswith("JAX_PERSISTENT")},
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


def test_of_triton_and_jax_in_one_program_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    programs = Programs("jax", tmp_path)
    first, said = _run(programs)
    assert first["triton"] == 3
    assert first["jax"] >= 2
    assert f"0 found, {sum(first.values())} compiled; in" in said
    second, said = _run(programs)
    assert second == {"jax": 0, "triton": 0}
    assert f"{sum(first.values())} found, 0 compiled; " in said
    assert "goes on with its own cache" not in said

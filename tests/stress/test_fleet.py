# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress fleet``: its table, JSON and picture, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

from lockcache_stress.experiments import WAYS
from tests.stress.support import stress

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "fleet.md"


def test_the_model_is_near_what_was_counted_and_the_command_says_so(run_path: Path) -> None:
    ran = stress("fleet", "--check", run_path=run_path)
    assert ran.returncode == 0, ran.stdout
    assert len(ran.stdout.splitlines()) == 5


def test_the_page_has_what_a_run_gives_now(run_path: Path) -> None:
    ran = stress("fleet", "--ranks", "64", "--seed", "1", "--markdown", run_path=run_path)
    assert ran.returncode == 0, ran.stderr
    rows = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 * (2 + len(WAYS))
    assert [row for row in rows if row not in PAGE.read_text()] == []

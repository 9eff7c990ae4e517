"""Each bug that can be planted in the library is found: if one is not, this suite proves nothing, and fails."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from lockcache_stress.commands import scenarios
from lockcache_stress.trouble.faults import BUGS
from tests.stress.support import stress_json
from tests.thinning import all_but


@pytest.mark.parametrize("name", all_but(["no-lock-in-publish"], BUGS))
def test_a_bug_in_the_library_is_found_as_what_it_is(name: str, run_path: Path) -> None:
    (report,) = stress_json("bugs", name, "--seconds", "4", run_path=run_path)
    assert report["found"]
    assert set(report["failed_checks"]) & set(BUGS[name].found_by)


@pytest.mark.long
def test_a_bug_that_is_not_found_as_what_it_is_fails_the_run(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Planted as ever, it is looked for by a check that sees nothing of it."""
    monkeypatch.setenv("TMPDIR", str(run_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setitem(BUGS, "no-recency", replace(BUGS["no-recency"], found_by=("torn",)))
    monkeypatch.setattr(sys, "argv", ["lockcache-stress", "bugs", "no-recency", "--seconds", "0.1"])
    assert scenarios.run_command_line() == 1
    printed = capfd.readouterr().out
    assert "no-recency" in printed
    assert "NO" in printed

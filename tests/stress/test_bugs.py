"""Each bug that can be planted in the library is found: if one is not, this suite proves nothing, and fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.trouble.library_bugs import BUGS
from tests.stress.support import stress, stress_json
from tests.thinning import all_but


@pytest.mark.parametrize("name", all_but(["no-lock-in-publish"], BUGS))
def test_a_bug_in_the_library_is_found_as_what_it_is(name: str, run_path: Path) -> None:
    (report,) = stress_json("bugs", name, "--seconds", "4", run_path=run_path)
    assert report["found"]
    assert set(report["failed_checks"]) & set(BUGS[name].found_by)


@pytest.mark.long
def test_a_bug_that_is_not_found_fails_the_run(run_path: Path) -> None:
    """In no time at all nothing is evicted, so nothing is evicted wrongly."""
    ran = stress("bugs", "no-recency", "--seconds", "0.1", run_path=run_path)
    assert ran.returncode == 1
    assert "no-recency" in ran.stdout
    assert "NO" in ran.stdout

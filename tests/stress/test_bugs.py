"""Each bug that can be planted in the library is found: if one is not, this suite proves nothing, and fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.trouble.faults import BUGS
from tests.matrix_sampling import all_but
from tests.stress.support import stress_json


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", all_but(["no-lock-in-publish"], BUGS))
def test_a_bug_in_the_library_is_found_as_what_it_is(name: str, run_path: Path) -> None:
    (report,) = stress_json("bugs", name, "--seconds", "4", run_path=run_path, timeout=280)
    assert report["found"]
    assert set(report["failed_checks"]) & set(BUGS[name].found_by)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_bug_that_does_not_show_in_so_short_a_time_is_given_more(run_path: Path) -> None:
    (report,) = stress_json("bugs", "no-second-look", "--seconds", "0.1", run_path=run_path, timeout=280)
    assert report["found"]

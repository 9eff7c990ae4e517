# SPDX-License-Identifier: Apache-2.0
"""Bugs that are planted in the library are found: if one is not, this suite proves nothing, and fails.

``make stress`` plants all of them every night. Here some are, and each is seen to fit the library as it is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockcache_stress.trouble.faults import BUGS
from tests.matrix_sampling import all_but
from tests.stress.support import stress_json


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", all_but(["no-lock-in-publish"], ["no-lock-in-publish", "no-reservation", "lease-kept"])
)
def test_a_bug_in_the_library_is_found_as_what_it_is(name: str, run_path: Path) -> None:
    (report,) = stress_json("bugs", name, "--seconds", "4", run_path=run_path, timeout=280)
    assert report["found"]
    assert set(report["failed_checks"]) & set(BUGS[name].found_by)


def test_every_bug_fits_the_library_as_it_is() -> None:
    """Planting raises where the library has no such function any more. All of them break one process, in turn."""
    program = (
        "from lockcache_stress.trouble import BUGS, HERD_FAULTS, plant_bug\n"
        "for fault in (*BUGS.values(), *HERD_FAULTS.values()):\n"
        "    plant_bug(fault)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

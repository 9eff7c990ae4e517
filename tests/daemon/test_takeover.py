# SPDX-License-Identifier: Apache-2.0
"""Daemons that stand by for one another die and come back at random, under writers: never two at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.run.session import Options, run_bytes
from lockcache_stress.scenarios.takeover import SCENARIO
from tests.matrix_sampling import all_but


@pytest.mark.long
@pytest.mark.parametrize("seed", all_but([1], [1, 2]))
def test_two_daemons_never_keep_a_directory_at_once_however_they_die(tmp_path: Path, seed: int) -> None:
    options = Options(3, 8.0, SCENARIO.max_size_bytes, seed, str(tmp_path / "cache"))
    outcome = run_bytes(SCENARIO, options, lambda stage, share, words: None)
    assert outcome.ok, [check for check in outcome.checks() if not check.ok] + outcome.findings
    found = {check.name: check.value for check in outcome.extra_checks}
    assert int(found["SIGKILLs of daemons"]) > 1
    assert int(found["daemons that kept the directory"]) > 1
    assert found["two daemons at once"] == "0"

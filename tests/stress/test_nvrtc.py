# SPDX-License-Identifier: Apache-2.0
"""The NVRTC scenario with the real compiler, as a user runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache_stress.gpu.kernels import ARCHS, make_slots
from tests.stress.support import stress_json

_SMALL = ("nvrtc", "--processes", "3", "--kernels", "3", "--seconds", "3", "--seed", "2", "--gpu", "off")


@pytest.mark.cuda
@pytest.mark.long
def test_real_programs_come_back_as_they_were_compiled_under_a_cap_that_a_real_daemon_holds(run_path: Path) -> None:
    report = stress_json(*_SMALL, "--with-daemon", "--max-size", "500k", run_path=run_path)
    assert report["compiles"] > 0
    assert report["hits"] > 0
    assert report["working_set_bytes"] > report["cap_bytes"] >= report["peak_bytes"]
    assert report["daemon"]["ended_when_asked"]
    # What the daemon evicted is in the histories, or misses would have no cause.
    assert (report["histories"]["illegal"], report["histories"]["unknown"]) == ([], [])
    assert os.listdir(run_path) == []


def test_the_same_seed_gives_the_same_kernels() -> None:
    assert make_slots(8, 1, ARCHS) == make_slots(8, 1, ARCHS) != make_slots(8, 2, ARCHS)

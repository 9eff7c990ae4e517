# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress filesystems``: real mounts, a verdict for each, and none left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stress.support import stress_json


@pytest.mark.long
@pytest.mark.root
def test_a_scenario_runs_on_every_file_system_that_can_be_had_and_no_mount_is_left(run_path: Path) -> None:
    words = ("filesystems", "--scenario", "same-key", "--seconds", "5", "--seed", "1")
    report = stress_json(*words, run_path=run_path)
    assert report["ok"]
    found = report["file_systems"]
    assert list(found) == ["ext4", "xfs", "btrfs", "tmpfs", "overlayfs"]
    for each in found.values():
        assert each["skipped"] or [run["scenario"] for run in each["scenarios"]] == ["same-key"]
        assert all(run["hits"] > 0 for run in each["scenarios"])
    assert not found["tmpfs"]["skipped"]
    assert str(run_path) not in Path("/proc/self/mounts").read_text()
    assert os.listdir(run_path) == []

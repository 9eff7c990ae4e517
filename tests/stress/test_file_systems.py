"""``lockcache-stress filesystems``: real mounts, a verdict for each, and none left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.stress.support import stress, stress_json


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


@pytest.mark.long
@pytest.mark.root
def test_a_file_system_whose_mkfs_is_missing_is_skipped_with_the_reason(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = run_path / "programs"
    programs.mkdir()
    for name in ("mount", "umount"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    monkeypatch.setenv("PATH", str(programs))
    words = ("filesystems", "xfs", "tmpfs", "--scenario", "same-key", "--seconds", "2", "--seed", "1")
    found = stress_json(*words, run_path=run_path)["file_systems"]
    assert found["xfs"] == {"ok": True, "skipped": "needs mkfs.xfs", "scenarios": []}
    assert [run["scenario"] for run in found["tmpfs"]["scenarios"]] == ["same-key"]


def test_a_file_system_that_is_not_known_is_refused_in_one_line(run_path: Path) -> None:
    ran = stress("filesystems", "ntfs", run_path=run_path)
    assert ran.returncode == 2
    assert "ntfs" in ran.stderr
    assert ran.stderr.count("\n") == 1

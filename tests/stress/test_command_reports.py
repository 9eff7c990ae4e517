# SPDX-License-Identifier: Apache-2.0
"""Files of kill-table, bugs, power-cut and filesystems: verdicts, tables, skips, replays."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lockcache_stress.commands.file_systems import _Making
from lockcache_stress.experiments.proofs import Tried
from lockcache_stress.report.files import Files
from lockcache_stress.run.outcome import Check
from tests.stress.reports import Page, assert_is_junit, make_outcome
from tests.stress.support import PROGRAM, environment


def verdict(run_path: Path) -> str:
    return re.findall(r"<title>(\w+): ", (run_path / "report.html").read_text())[0]


def test_a_scenario_that_fails_on_one_file_system_is_shown_in_full_with_a_replay_there(tmp_path: Path) -> None:
    good, bad = make_outcome(tmp_path), make_outcome(tmp_path)
    for outcome in (good, bad):
        outcome.plan = make_outcome(tmp_path).plan
        outcome.totals.update(dict.fromkeys(("torn", "stale", "foreign", "kept_older"), 0))
    bad.extra_checks = [Check("bones", "broken", "whole", False)]
    tried = {"ext4": Tried([good]), "xfs": Tried([bad]), "btrfs": Tried(skipped="needs <mkfs.btrfs>")}
    written = _Making(tried, ["test"], 2.0, 7)()
    assert not written.ok
    Files(str(tmp_path / "report.html"), str(tmp_path / "j.xml")).write(written)
    page, document = Page((tmp_path / "report.html").read_text()), ET.parse(tmp_path / "j.xml").getroot()
    assert_is_junit(document)
    assert verdict(tmp_path) == "FAILED"
    assert [suite.get("name") for suite in document] == ["ext4", "xfs", "xfs: test", "btrfs"]
    assert ["test", f"ok {good.totals['operations']:,}", "NO", "--"] in page.rows
    assert ["bones", "broken", "whole", "NO"] in page.rows
    assert ["btrfs", "skipped: needs <mkfs.btrfs>"] in page.rows
    assert "lockcache-stress filesystems xfs --scenario test --seconds 2 --seed 7" in page.text


@pytest.mark.long
def test_what_cannot_be_had_is_skipped_in_the_files_and_exit_code_2_unless_if_possible(run_path: Path) -> None:
    """With no program to mount with, as for everyone but root."""
    command = "filesystems"
    report, junit = run_path / "report.html", run_path / "junit.xml"
    words = [PROGRAM, command, "--report", str(report), "--junit", str(junit)]
    given = {**environment(run_path), "PATH": str(run_path)}
    ran = subprocess.run(words, env=given, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 2
    assert re.fullmatch(rf"lockcache-stress: {command} cannot be run here: needs .*\n", ran.stderr)
    assert verdict(run_path) == "skipped"
    document = ET.parse(junit).getroot()
    assert_is_junit(document)
    skipped = [case for case in document.iter("testcase") if case.find("skipped") is not None]
    assert len(skipped) == len(document) > 1
    words.append("--if-possible")
    ran = subprocess.run(words, env=given, capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ext4: skipped: needs " in ran.stdout

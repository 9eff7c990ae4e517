"""Files of kill-table, bugs, power-cut and filesystems: verdicts, tables, skips, replays."""

from __future__ import annotations

import itertools
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lockcache_stress.commands.file_systems import _Making
from lockcache_stress.commands.kill_table import _tabulate
from lockcache_stress.commands.power_cut import _tabulate as tabulate_cuts
from lockcache_stress.experiments import proofs
from lockcache_stress.experiments.kill_table import Row, Survey
from lockcache_stress.experiments.power_cut import Cut
from lockcache_stress.experiments.proofs import Tried
from lockcache_stress.report.content import Ran, Written
from lockcache_stress.report.files import Files
from lockcache_stress.run.outcome import Check
from lockcache_stress.trouble.faults import BUGS
from tests.stress.reports import Page, assert_is_junit, make_outcome, run_with_files
from tests.stress.support import PROGRAM, environment, failed_checks, stress

COMMANDS = ("kill-table", "bugs", "power-cut", "filesystems")


def verdict(run_path: Path) -> str:
    return re.findall(r"<title>(\w+): ", (run_path / "report.html").read_text())[0]


def cases(document: ET.Element) -> dict[str | None, ET.Element | None]:
    return {case.get("name"): case.find("failure") for case in document.iter("testcase")}


def properties_of(document: ET.Element) -> dict[str | None, str | None]:
    return {each.get("name"): each.get("value") for each in document.iter("property")}


@pytest.mark.long
def test_the_page_of_the_kill_table_has_a_row_for_each_death(run_path: Path) -> None:
    rows, page, document = run_with_files(run_path, "kill-table", "sweep")
    assert verdict(run_path) == "ok"
    shown = [row for row in page.rows if row[0] == "sweep" and len(row) > 4]
    assert [row[1:4] for row in shown] == [[str(row["number"]), row["step"], row["entry"]] for row in rows]
    assert all(row[-1] == "ok" for row in shown)
    assert page.outcome["scenarios"][0]["deaths"] == rows
    assert cases(document) == {"sweep: wrong": None}
    assert properties_of(document)["sweep: deaths"] == str(len(rows))
    assert properties_of(document)["replay"] == "lockcache-stress kill-table sweep"
    assert all(row["ok"] for row in rows)
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["step"] for row in rows][:2] == ["unlink(entries/SHARD/NAME)", "pwrite(lockcache/state)"]


@pytest.mark.long
def test_a_death_that_leaves_something_wrong_is_a_failure_that_says_which(tmp_path: Path) -> None:
    rows = [
        Row("put", 1, "open(x)", Survey("older", 6, 0, 0, 0, ())),
        Row("put", 2, "write(<x>)", Survey("torn", 6, 0, 0, -5, ("all is lost",))),
    ]
    Files(str(tmp_path / "report.html"), str(tmp_path / "j.xml")).write(Written("t", [Ran(_tabulate(rows), ["x"])], {}))
    page, document = Page((tmp_path / "report.html").read_text()), ET.parse(tmp_path / "j.xml").getroot()
    assert_is_junit(document)
    assert verdict(tmp_path) == "FAILED"
    assert ["put", "2", "write(<x>)", "torn", "6/6", "0", "0", "-5", "all is lost", "NO"] in page.rows
    failure = cases(document)["put: wrong"]
    assert failure is not None
    assert failure.get("message") == "put: wrong is 1, must be 0"
    assert "put, death 2, in front of write(<x>): all is lost" in (failure.text or "")


@pytest.mark.long
def test_a_bug_that_is_found_is_a_pass(run_path: Path) -> None:
    (found,), page, document = run_with_files(run_path, "bugs", "no-digest", "--seconds", "2")
    assert verdict(run_path) == "ok"
    assert cases(document) == {"no-digest": None}
    assert [row[-2:] for row in page.rows if row[0] == "no-digest"][-1] == [", ".join(found["failed_checks"]), "ok"]


@pytest.mark.long
def test_a_bug_that_is_not_found_is_a_failure_with_its_replay(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted as ever, it is looked for by a check that sees nothing of it."""
    monkeypatch.setitem(BUGS, "no-recency", replace(BUGS["no-recency"], found_by=("torn",)))
    monkeypatch.setattr(proofs, "_LONGEST_SECONDS", 0.2)  # it is never found, however long it is looked for
    words = ("bugs", "no-recency", "--seconds", "0.1", "--seed", "7")
    (missed,), page, document = run_with_files(run_path, *words, code=1)
    assert not missed["found"]
    assert verdict(run_path) == "FAILED"
    replay = shlex.join(["lockcache-stress", *words])
    assert replay in page.text
    assert [row[-1] for row in page.rows if row[0] == "no-recency"][-1] == "NO"
    failure = cases(document)["no-recency"]
    assert failure is not None
    assert "must be found by: torn" in (failure.get("message") or "")
    assert f"replay: {replay}" in (failure.text or "")


@pytest.mark.long
@pytest.mark.root
def test_power_cuts_are_judged_by_file_system_and_by_fsync(run_path: Path) -> None:
    printed, page, document = run_with_files(run_path, "power-cut", "--seconds", "0.1", "--writers", "2")
    assert verdict(run_path) == "ok"
    assert page.outcome["scenarios"][0]["cuts"] == printed["cuts"]
    judged = [name for name in cases(document) if name is not None and name.startswith("ext4, ")]
    assert judged == [
        "ext4, without fsync: cuts",
        "ext4, without fsync: cuts before any write",
        "ext4, without fsync: torn",
        "ext4, with fsync: cuts",
        "ext4, with fsync: cuts before any write",
        "ext4, with fsync: torn",
        "ext4, with fsync: writes lost",
    ]
    assert "ext4, without fsync: writes lost" in properties_of(document)
    [ext4] = [row for row in page.rows if row[:2] == ["ext4", "yes"]]
    assert ext4[2:4] == ["1", f"{printed['cuts'][1]['writes']:,}"]
    assert shlex.join(printed["replay"]) in page.text
    kinds = [kind for kind in ("ext4", "xfs") if kind not in printed["skipped"]]
    assert ("xfs" in kinds) == (shutil.which("mkfs.xfs") is not None)
    assert [(cut["kind"], cut["fsync"]) for cut in printed["cuts"]] == list(itertools.product(kinds, (False, True)))
    assert all(cut["writes"] > 0 and cut["torn"] == 0 for cut in printed["cuts"])
    assert all(cut["lost"] == 0 and cut["served"] > 0 for cut in printed["cuts"] if cut["fsync"])
    assert str(run_path) not in Path("/proc/self/mounts").read_text()
    assert sorted(os.listdir(run_path)) == ["junit.xml", "report.html"]


def test_a_cut_that_tears_or_loses_what_was_synced_fails_as_that() -> None:
    cuts = [Cut("xfs", fsync=True, writers=1, writes=5, torn=1, lost=2), Cut("xfs", fsync=True, writers=1, writes=5)]
    outcome = tabulate_cuts(cuts, 1)
    assert failed_checks(outcome.as_json()) == {"xfs, with fsync: torn", "xfs, with fsync: writes lost"}
    assert [each["error"] for each in outcome.findings] == [
        "cut 1 (xfs, with fsync): 1 torn, 2 lost, 5 writes before it"
    ]


@pytest.mark.long
@pytest.mark.root
def test_each_file_system_is_a_suite_and_the_page_has_the_table(run_path: Path) -> None:
    words = ("filesystems", "tmpfs", "overlayfs", "--scenario", "same-key", "--seconds", "3", "--seed", "5")
    printed, page, document = run_with_files(run_path, *words)
    assert verdict(run_path) == "ok"
    assert [suite.get("name") for suite in document] == ["tmpfs", "overlayfs"]
    assert [case.get("name") for case in document.iter("testcase")] == ["same-key", "same-key"]
    counts = [printed["file_systems"][name]["scenarios"][0]["operations"] for name in ("tmpfs", "overlayfs")]
    assert ["scenario", "tmpfs", "overlayfs"] in page.rows
    assert ["same-key", *(f"ok {count:,}" for count in counts)] in page.rows
    replay = "lockcache-stress filesystems tmpfs --scenario same-key --seconds 1.5 --seed 5"
    assert replay in page.text


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
@pytest.mark.parametrize("command", ["power-cut", "filesystems"])
def test_what_cannot_be_had_is_skipped_in_the_files_and_exit_code_2_unless_if_possible(
    command: str, run_path: Path
) -> None:
    """With no program to mount with, as for everyone but root."""
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


@pytest.mark.long
@pytest.mark.root
def test_a_file_system_whose_mkfs_is_missing_is_skipped_and_the_other_is_cut(run_path: Path) -> None:
    programs = run_path / "programs"
    programs.mkdir()
    for name in ("cp", "mount", "umount", "mkfs.ext4"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    words = [PROGRAM, "power-cut", "--seconds", "0.1", "--junit", str(run_path / "junit.xml")]
    given = {**environment(run_path), "PATH": str(programs)}
    ran = subprocess.run(words, env=given, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "xfs: skipped: needs mkfs.xfs" in ran.stdout
    document = ET.parse(run_path / "junit.xml").getroot()
    assert_is_junit(document)
    assert [suite.get("name") for suite in document] == ["power-cut", "xfs"]


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_where_no_file_can_be_put_is_said_before_anything_is_run(command: str, run_path: Path) -> None:
    ran = stress(command, "--junit", str(run_path / "missing" / "j.xml"), run_path=run_path)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert "--junit" in ran.stderr
    assert os.listdir(run_path) == []


def test_ctrl_c_leaves_the_deaths_that_there_were_and_says_that_it_is_not_all(run_path: Path) -> None:
    report, junit = run_path / "report.html", run_path / "junit.xml"
    ours, theirs = pty.openpty()  # on a terminal the program says how far it is
    words = [PROGRAM, "kill-table", "--report", str(report), "--junit", str(junit)]
    process = subprocess.Popen(
        words, env=environment(run_path), stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    said = b""
    while not re.search(rb"[2-9] deaths", said):
        said += os.read(ours, 4096)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # EIO: nobody has the other end any more
            break
    os.close(ours)
    assert process.wait(timeout=60) == 130, said
    assert b"Traceback" not in said
    assert sorted(os.listdir(run_path)) == ["junit.xml", "report.html"]
    page, document = Page(report.read_text()), ET.parse(junit).getroot()
    assert_is_junit(document)
    assert verdict(run_path) == "FAILED"
    assert re.search(r"ended by KeyboardInterrupt after \d+ deaths", page.text)
    assert len(page.outcome["scenarios"][0]["deaths"]) > 0
    assert any("KeyboardInterrupt" in (each.get("message") or "") for each in document.iter("failure"))

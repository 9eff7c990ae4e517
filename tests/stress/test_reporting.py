# SPDX-License-Identifier: Apache-2.0
"""Files of --report and --junit: the numbers of the run, whole, well-formed, and harmless whatever was in them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lockcache_stress.commands.shell import Shell
from lockcache_stress.report.content import Ran, Written
from lockcache_stress.report.files import Files
from lockcache_stress.run.outcome import Check, Outcome
from lockcache_stress.run.sampler import Samples
from tests.stress.reports import Page, Run, assert_is_junit, make_outcome, run_with_files

_SHORT = ("same-key", "--processes", "3", "--seconds", "0.5")


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    path = tmp_path_factory.mktemp("run")
    return path, run_with_files(path, *_SHORT)


@pytest.mark.long
def test_the_files_have_the_numbers_that_the_run_printed(short_run: tuple[Path, Run]) -> None:
    run_path, (printed, page, document) = short_run
    checks = printed["checks"]
    rows = [[check["name"], check["value"], check["must"]] for check in checks]
    assert [row[:3] for row in page.rows if row[:3] in rows] == rows
    [in_page] = page.outcome["scenarios"]
    assert in_page == printed
    assert shlex.join(printed["replay"]) in page.text
    assert "cpu: " in page.text
    judged = [check["name"] for check in checks if check["must"]]
    assert [case.get("name") for case in document.iter("testcase")] == judged
    properties = {each.get("name"): each.get("value") for each in document.iter("property")}
    assert properties["replay"] == shlex.join(printed["replay"])
    assert properties["misses"] == f"{printed['misses']:,}"
    assert sorted(os.listdir(run_path)) == ["junit.xml", "report.html"]


def test_whatever_a_finding_says_both_files_are_well_formed(tmp_path: Path) -> None:
    findings = [{"error": "</script><b>\x00\x08\udcff￾ ]]>&"}, {"head": "<i>"}]
    outcome = make_outcome(tmp_path, findings=findings, deaths=["worker 1 <u>"])
    outcome.extra_checks = [Check("a <b>check</b>", "1 & 2", "< 1", False)]
    report, junit = tmp_path / "r.html", tmp_path / "j.xml"
    Files(str(report), str(junit)).write(Written("<h1>", [Ran(outcome, ["x", "<y>"])], {"<cpu>": "\x07"}))
    page, document = Page(report.read_text()), ET.parse(junit).getroot()
    assert_is_junit(document)
    for tag in ("b", "i", "u"):
        assert not [given for name, given in page.tags if name == tag and "pill" not in (given.get("class") or "")]
    assert ["a <b>check</b>", "1 & 2", "< 1", "NO"] in page.rows
    assert "\\x00\\x08\\udcff\\ufffe ]]>&" in page.text
    messages = [each.get("message") or "" for each in document.iter("failure")]
    assert "a <b>check</b> is 1 & 2, must be < 1" in messages


def test_a_link_in_the_place_of_the_report_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "report.html"
    precious.write_text("mine")
    link.symlink_to(precious)
    Files(str(link), None).write(Written("title", [Ran(make_outcome(tmp_path), [])], {}))
    assert precious.read_text() == "mine"
    assert not link.is_symlink()


def test_what_ends_all_early_leaves_the_report_of_what_was_run(tmp_path: Path) -> None:
    report, junit = tmp_path / "r.html", tmp_path / "j.xml"
    outcomes: list[Any] = []

    def interrupted() -> Iterator[Outcome]:
        yield make_outcome(tmp_path)
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Shell("all", Files(str(report), str(junit)), as_json=True).running_all(outcomes, [("herd", "no <NVRTC>")]),
    ):
        outcomes.extend(interrupted())
    page, document = Page(report.read_text()), ET.parse(junit).getroot()
    assert_is_junit(document)
    assert page.count("p", id="cut-short") == 1
    assert page.outcome["ok"] is False
    assert ["herd", "skipped: no <NVRTC>"] in page.rows
    assert "ended by KeyboardInterrupt after 1 scenarios" in page.text
    assert [each.get("message") for each in document.iter("skipped")] == ["no <NVRTC>"]
    assert any("KeyboardInterrupt" in (each.get("message") or "") for each in document.iter("failure"))


def test_samples_are_bounded_and_never_lose_the_peak() -> None:
    samples = Samples()
    for number in range(50_000):
        samples.add(float(number), 10**9 if number == 31_337 else number % 1000)
    points = samples.points()
    assert len(points) < 2000
    assert (31_337.0, 10**9) in points
    assert points == sorted(points)

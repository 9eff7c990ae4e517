"""Files of --report and --junit: the numbers of the run, whole, well-formed, and harmless whatever was in them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lockcache_stress.commands.shell import Shell
from lockcache_stress.errors import UnusableError
from lockcache_stress.report.content import Ran, Written
from lockcache_stress.report.files import Files
from lockcache_stress.run.outcome import Check, Outcome
from lockcache_stress.run.sampler import Samples
from lockcache_stress.trouble.workspace import can_mount, mounted_tmpfs
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


@pytest.mark.long
def test_the_page_needs_nothing_beside_it_and_has_both_plots_in_the_reader_s_colours(
    short_run: tuple[Path, Run],
) -> None:
    run_path, (_, page, _) = short_run
    assert page.count("svg", role="img", **{"class": "plot"}) == 2
    assert page.count("script") == page.count("script", type="application/json") == 1
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object"}
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert not name.endswith(("href", "src")) or (value or "").startswith("#"), (tag, name, value)
    names = [given["id"] for _, given in page.tags if "id" in given]
    assert len(names) == len(set(names))
    text = (run_path / "report.html").read_text()
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert "#010203" not in text
    assert "url(#" not in re.sub(r"url\(#plot-0-[01]-", "", text)


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


def test_nothing_of_the_extra_is_imported_unless_asked_for() -> None:
    program = (
        "import sys, lockcache_stress.commands; print(*{'matplotlib', 'jinja2', 'junitparser'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


@pytest.mark.long
def test_where_no_file_can_be_put_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe", "missing/report.html"):
        with pytest.raises(UnusableError, match=re.escape(f"--report {tmp_path / name}")):
            Files(str(tmp_path / name), None)
    with pytest.raises(UnusableError, match="--junit"):
        Files(str(tmp_path / "same"), str(tmp_path / "same"))
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_link_in_the_place_of_the_report_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "report.html"
    precious.write_text("mine")
    link.symlink_to(precious)
    Files(str(link), None).write(Written("title", [Ran(make_outcome(tmp_path), [])], {}))
    assert precious.read_text() == "mine"
    assert not link.is_symlink()


@pytest.mark.root
@pytest.mark.skipif(not can_mount(), reason="only root may mount a tmpfs")
def test_on_a_full_disk_the_older_report_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with mounted_tmpfs(str(small), "64k") as mounted:
        if not mounted:
            pytest.skip("no tmpfs can be mounted here")
        report = small / "report.html"
        report.write_text("older")
        (small / "ballast").write_bytes(bytes(40_000))
        with pytest.raises(OSError, match="No space left"):
            Files(str(report), None).write(Written("title", [Ran(make_outcome(tmp_path), [])], {}))
        assert report.read_text() == "older"
        assert sorted(os.listdir(small)) == ["ballast", "report.html"]


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

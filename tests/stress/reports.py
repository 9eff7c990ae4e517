# SPDX-License-Identifier: Apache-2.0
"""Tools of the tests of reports: parsers of both files, and an outcome without a run."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from lockcache_stress.run.counters import COUNTED
from lockcache_stress.run.outcome import Outcome
from tests.stress.support import make_plan, stress

# The children of each element, and their attributes, in the part of the schema of Jenkins's xUnit plugin that is used.
_CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "skipped"},
}
_ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "skipped": {"message", "type"},
}


class Page(HTMLParser):
    """The page as a browser reads it: rows of tables, tags, and the outcome in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._cell = self._script = False
        self._outcome = ""
        self.feed(text)
        self.outcome = json.loads(self._outcome)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script:
            self._outcome += data
        self.text += data
        if self._cell:
            self.rows[-1][-1] += data

    def count(self, tag: str, **attributes: str) -> int:
        return sum(name == tag and attributes.items() <= given.items() for name, given in self.tags)


Run = tuple[dict[str, Any], Page, ET.Element]


def run_with_files(run_path: Path, *words: str, code: int = 0) -> Run:
    report, junit = run_path / "report.html", run_path / "junit.xml"
    ran = stress(*words, "--json", "--report", str(report), "--junit", str(junit), run_path=run_path)
    assert ran.returncode == code, ran.stdout + ran.stderr
    document = ET.parse(junit).getroot()
    assert_is_junit(document)
    return json.loads(ran.stdout), Page(report.read_text()), document


def assert_is_junit(element: ET.Element) -> None:
    assert set(element.attrib) <= _ATTRIBUTES.get(element.tag, set()), element.tag
    for child in element:
        assert child.tag in _CHILDREN.get(element.tag, set()), (element.tag, child.tag)
        assert_is_junit(child)
    if element.tag == "testsuite":
        assert int(element.get("tests", "-1")) == len(element.findall("testcase"))
        assert int(element.get("failures", "-1")) == len(element.findall("testcase/failure"))
        assert re.fullmatch(r"\d*(\.\d{0,3})?", element.get("time", ""))


def make_outcome(tmp_path: Path, **changes: Any) -> Outcome:
    outcome = Outcome(make_plan(tmp_path), **changes)
    outcome.totals = dict.fromkeys(COUNTED, 1)
    return outcome

# SPDX-License-Identifier: Apache-2.0
"""Decision records are numbered without a gap, have a date and a status, and are listed as they say of themselves."""

from __future__ import annotations

import re

from tests.docs.pages import PROJECT

FOLDER = PROJECT / "docs/decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
_STATED = re.compile(r"\*(\d{4}), (\d{4}-\d\d-\d\d), (accepted|superseded by \[\d{4}\]\([\w-]+\.md\))(?:[;:] .*)?\*")


def test_records_are_numbered_from_one_on() -> None:
    assert [path.name[:5] for path in RECORDS] == [f"{number:04}-" for number in range(1, len(RECORDS) + 1)]


def test_the_index_lists_each_record_with_its_title_date_and_status() -> None:
    index = (FOLDER / "index.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\((.*)\) \| (.*) \| (.*) \| (.*) \|$", index, re.MULTILINE)
    listed = []
    for path in RECORDS:
        title, _, line = path.read_text().splitlines()[:3]
        stated = _STATED.fullmatch(line)
        assert stated, f"{path.name}: {line}"
        number, date, status = stated.groups()
        listed.append((number, path.name, title.removeprefix("# "), date, status))
    assert rows == listed
    assert re.findall(r"^(\d{4}-\S+)$", index, re.MULTILINE) == [path.stem for path in RECORDS]

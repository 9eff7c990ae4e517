# SPDX-License-Identifier: Apache-2.0
"""The manual pages say what the programs understand, and are what man can show."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import PROJECT, load_script

man = load_script("man")
PAGES = sorted((PROJECT / "docs" / "man").glob("*.1"))


def test_the_pages_are_of_the_programs_as_they_are() -> None:
    changed = [path.name for path, text in man.pages().items() if not path.exists() or path.read_text() != text]
    assert changed == [], "make man"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_mistake_that_man_would_report(page: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("needs groff")
    command = ["groff", "-man", "-ww", "-Tutf8", "-rLL=80n", "-P-cbou", str(page)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    headings = re.findall(r"^([A-Z][A-Z ]+)$", shown.stdout, re.MULTILINE)
    assert {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"} <= set(headings)


def test_the_wheel_installs_every_page() -> None:
    text = (PROJECT / "pyproject.toml").read_text()
    assert re.findall(r'^"docs/man/(.+)" = "share/man/man1/\1"$', text, re.MULTILINE) == [
        "lockcache.1",
        "lockcache-daemon.1",
        "lockcache-stress.1",
    ]

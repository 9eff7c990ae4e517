# SPDX-License-Identifier: Apache-2.0
"""The figures of all pages are those of one run, and a new run's reach every page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, PROJECT, load_script

figures = load_script("figures")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the pages that show figures."""
    for page in PAGES:
        if "figure" in page.read_text():
            copy = tmp_path / page.relative_to(PROJECT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, copy)
    shutil.copy(PROJECT / "docs" / "figures.json", tmp_path / "docs")
    return tmp_path


def test_every_page_shows_the_figures_of_the_one_run() -> None:
    assert figures.main(["--check"]) == 0, "run `python docs/figures.py`"


def test_a_new_run_reaches_every_page_that_shows_its_figures(project: Path) -> None:
    run = json.loads((project / "docs" / "figures.json").read_text())
    [hit] = [line for line in run["lines"] if line["name"] == "hit, 16 KiB, verified"]
    hit["numbers"]["ours_us"] = 5.4321
    written = project / "bench.json"
    written.write_text(json.dumps(run))
    assert figures.main(["--project", str(project), "--check"]) == 0
    assert figures.main(["--project", str(project), str(written)]) == 0
    pages = (project / "docs/comparison.md", project / "docs/guides/containers.md")
    assert all("5.4 us" in page.read_text() for page in pages)
    assert figures.main(["--project", str(project), "--check"]) == 0


def test_a_run_of_the_boot_alone_changes_nothing_else(project: Path) -> None:
    starts = ("no cache", "cold", "warm", "another path", "another node")
    numbers = {"compilations": 7_777, "seconds": 12.3, "cpu_seconds": 0.0456}
    lines = [{"name": f"boot of 6 processes x 5 kernels, {start}", "numbers": numbers} for start in starts]
    kept = json.loads((project / "docs" / "figures.json").read_text())
    written = project / "boot.json"
    written.write_text(json.dumps({"quick": False, "machine": kept["machine"], "lines": lines}))
    before = (project / "docs/comparison.md").read_text()
    assert figures.main(["--project", str(project), "--boot", str(written)]) == 0
    assert "| another node, from a bundle | 7,777 | 12 s | 46 ms |" in (project / "README.md").read_text()
    assert (project / "docs/comparison.md").read_text() == before
    after = json.loads((project / "docs" / "figures.json").read_text())
    assert {**after, "boot": None} == {**kept, "boot": None}
    assert figures.main(["--project", str(project), "--check"]) == 0

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
    [hit] = [line for line in run["lines"] if line["name"].startswith("hit")]
    hit["numbers"]["ours_us"] = 5.4321
    written = project / "bench.json"
    written.write_text(json.dumps(run))
    assert figures.main(["--project", str(project), "--check"]) == 0
    assert figures.main(["--project", str(project), str(written)]) == 0
    pages = (project / "README.md", project / "docs/comparison.md", project / "docs/guides/containers.md")
    assert all("5.4 us" in page.read_text() for page in pages)
    assert figures.main(["--project", str(project), "--check"]) == 0

"""The figures of all pages are those of one run, and a new run's reach every page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, PROJECT, load_script
from tests.stress.support import stress

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


@pytest.mark.parametrize(
    "value, text",
    [(0.712, "0.71 s"), (2.0, "2.0 s"), (391e-3, "0.39 s"), (17e-3, "17 ms"), (149e-6, "0.15 ms"), (3.4e-6, "3.4 us")],
)
def test_a_time_reads_in_the_unit_that_suits_it(value: float, text: str) -> None:
    assert figures.seconds(value) == text


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


def test_a_run_that_lacks_a_figure_of_a_page_changes_nothing_and_says_which(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads((project / "docs" / "figures.json").read_text())
    run["lines"] = [line for line in run["lines"] if "memory" not in line["name"]]
    (project / "bench.json").write_text(json.dumps(run))
    assert figures.main(["--project", str(project), str(project / "bench.json")]) == 1
    assert "sizing.md shows daemon-memory" in capsys.readouterr().err


def test_a_quick_run_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "bench.json").write_text(json.dumps({"quick": True, "lines": [], "machine": {}}))
    assert figures.main(["--project", str(project), str(project / "bench.json")]) == 1
    assert "--quick" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_run_of_the_benchmark_fills_a_page(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page, written = tmp_path / "README.md", tmp_path / "bench.json"
    page.write_text("<!-- figures: long -->\n<!-- end of figures -->\na miss: <!--figure miss--><!--end-->\n")
    ran = stress("bench", "miss", "--quick", "--no-fail", "--json-file", str(written), run_path=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert figures.main(["--project", str(tmp_path), "--quick-too", str(written)]) == 0
    assert re.search(r"^\| a miss \| [\d.]+ (us|ms) ", page.read_text(), re.MULTILINE)
    assert re.search(r"^a miss: <!--figure miss-->[\d.]+ (us|ms)<!--end-->$", page.read_text(), re.MULTILINE)

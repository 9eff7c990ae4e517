"""``lockcache-stress fleet``: its table, JSON and picture, and the page that shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from lockcache_stress.experiments import WAYS
from tests.stress.support import stress, stress_json

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "fleet.md"
SMALL = ("fleet", "--ranks", "8", "--ranks", "16", "--kernels", "5")


def test_json_has_each_start_and_its_costs_and_the_seed_replays_it(run_path: Path) -> None:
    printed: dict[str, Any] = stress_json(*SMALL, "--seed", "7", run_path=run_path)
    assert [(start["stored"], start["ranks"]) for start in printed["starts"]] == [(0, 8), (0, 16), (1, 8), (1, 16)]
    for start in printed["starts"]:
        assert [way["way"] for way in start["ways"]] == list(WAYS)
        assert start["seed"] == 7
    assert stress_json(*SMALL, "--seed", "7", run_path=run_path) == printed
    assert stress_json(*SMALL, "--seed", "8", run_path=run_path) != printed


def test_the_picture_is_an_svg_of_its_own_with_every_way(run_path: Path) -> None:
    path = run_path / "fleet.svg"
    ran = stress(*SMALL, "--svg", str(path), run_path=run_path)
    assert ran.returncode == 0, ran.stderr
    text = path.read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    for words in (*WAYS, "0% stored", "100% stored", "requests to the server"):
        assert words in text


def test_the_model_is_near_what_was_counted_and_the_command_says_so(run_path: Path) -> None:
    ran = stress("fleet", "--check", run_path=run_path)
    assert ran.returncode == 0, ran.stdout
    assert len(ran.stdout.splitlines()) == 5


def test_the_page_has_what_a_run_gives_now(run_path: Path) -> None:
    ran = stress("fleet", "--ranks", "64", "--seed", "1", "--markdown", run_path=run_path)
    assert ran.returncode == 0, ran.stderr
    rows = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 * (2 + len(WAYS))
    assert [row for row in rows if row not in PAGE.read_text()] == []

# SPDX-License-Identifier: Apache-2.0
"""Modules, lines and megabytes that a program loads are those of the page, and no other room is loaded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.pages import PROJECT

_PAGE = (PROJECT / "docs" / "internals" / "loaded.md").read_text()
_PACKAGES = ("lockcache", "daemon/lockcache_start", "daemon/lockcache_daemon", "stress/lockcache_stress")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [
        sys.executable,
        PROJECT / "tests/docs/loaded_modules.py",
        "writes",
        tmp_path_factory.mktemp("loaded") / "k",
    ]
    # Not through lockcache's own variables, and not where coverage would load more.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKCACHE", "COVERAGE"))}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _stated(beginning: str) -> list[float]:
    """Returns the numbers of a row of the page's table."""
    [row] = [line for line in _PAGE.splitlines() if line.startswith(f"| {beginning}")]
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    return [float(cell.replace(",", "").removesuffix(" MB")) for cell in cells if cell]


@pytest.mark.unmeasured
def test_modules_lines_and_bytes_are_those_of_the_page(loaded: dict[str, Any]) -> None:
    modules, lines, megabytes, memory = _stated("loaded by a program")
    for found, stated in (
        (len(loaded["modules"]), modules),
        (loaded["lines"], lines),
        (loaded["bytes"] / 1e6, megabytes),
    ):
        assert 0.9 * stated <= found <= stated
    assert loaded["memory"] / 1e6 <= memory


@pytest.mark.unmeasured
def test_no_room_is_loaded_that_the_page_says_is_not(loaded: dict[str, Any]) -> None:
    listed = _PAGE[_PAGE.index("Never loaded") : _PAGE.index("A feature's room")]
    rooms = set(re.findall(r"`(lockcache[\w.]*)`", listed))
    assert rooms >= {"lockcache_daemon", "lockcache_stress", "lockcache.integrations", "lockcache.remote"}
    assert not [name for name in loaded["modules"] if {name, *_parents(name)} & rooms]
    assert not {"cuda", "numpy", "click", "rich", "redis", "obstore", "urllib3", "psutil", "asyncio"} & {
        *loaded["packages"]
    }


def _parents(name: str) -> list[str]:
    return [name[: at.start()] for at in re.finditer(r"\.", name)]


def test_the_whole_is_what_the_page_says() -> None:
    files = [path for package in _PACKAGES for path in (PROJECT / package).rglob("*.py")]
    modules, lines, megabytes = _stated("in the wheel")
    for found, stated in (
        (len(files), modules),
        (sum(len(path.read_text().splitlines()) for path in files), lines),
        (sum(path.stat().st_size for path in files) / 1e6, megabytes),
    ):
        assert 0.9 * stated <= found <= 1.05 * stated

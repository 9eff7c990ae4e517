# SPDX-License-Identifier: Apache-2.0
"""``pytest --by-folder``: a line for each folder, failures named and shown in full, and pytest's own last line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

_SAMPLE = """
import pytest
@pytest.mark.parametrize("number", range(9))
def test_passes(number): pass
def test_fails(): assert 1 == 2, "the reason"
def test_is_skipped(): pytest.skip("no such thing")
@pytest.fixture
def broken(): raise OSError("no such file")
def test_cannot_begin(broken): pass
"""
_PROJECT = Path(__file__).parents[2]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    for folder in ("one", "two"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / f"test_{folder}.py").write_text(
            _SAMPLE if folder == "one" else "def test_it(): pass"
        )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    return tmp_path


def _run(sample: Path, *words: str, output: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.progress", "-p", "no:cacheprovider", "--by-folder", *words]
    environment = {**os.environ, "PYTHONPATH": str(_PROJECT), "COLUMNS": "80", "TERM": "xterm"}
    return subprocess.run(
        [*command, "tests"],
        cwd=sample,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("-n", "1", "--dist", "worksteal")], ids=["alone", "xdist"])
def test_each_folder_has_a_line_and_failures_are_shown_in_full(words: tuple[str, ...], sample: Path) -> None:
    ran = _run(sample, *words)
    lines = ran.stdout.splitlines()
    assert ran.returncode == 1
    assert any(line.startswith("13 tests in 2 folders, collected in ") for line in lines)
    assert any(line.startswith("  one          2 failed, 9 passed, 1 skipped, done after ") for line in lines)
    assert any(line.startswith("  two          1 passed, done after ") for line in lines)
    assert "FAILED tests/one/test_one.py::test_fails" in lines
    assert "FAILED tests/one/test_one.py::test_cannot_begin (setup)" in lines
    assert "E   AssertionError: the reason" in ran.stdout
    assert "FAILED tests/one/test_one.py::test_fails - AssertionError: the reason" in ran.stdout
    assert "1 failed, 10 passed, 1 skipped, 1 error in " in lines[-1]
    assert not any(set(line.strip()) & {"."} and set(line.partition(" [")[0]) <= set(".sFE") for line in lines)


@pytest.mark.slow
def test_a_terminal_has_one_line_of_what_runs_which_is_removed(sample: Path) -> None:
    ours, theirs = pty.openpty()
    assert _run(sample, output=theirs).returncode == 1
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:  # the end of a terminal's output
        os.close(ours)
    live = [part for part in said.decode().split("\r\x1b[K") if " after " in part and "tests/" not in part]
    assert live
    assert all(len(part.splitlines()[0]) < 80 for part in live)

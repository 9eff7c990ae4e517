"""The runner of the documents' examples finds examples that are wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import Console, environment, steps
from tests.docs.follow_page import follow_twice


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    (tmp_path / "work").mkdir()
    made = Console(tmp_path, environment(tmp_path))
    yield made
    made.close()


def _run(console: Console, text: str) -> None:
    for step in steps(text):
        console.run(step)


@pytest.mark.parametrize(
    "text",
    [
        "$ echo one; echo two\ntwo\none\n",
        "$ echo one two\none\n",
        "$ echo stored 4\nstored 3\n",
        "$ false\n",
        "$ true     # exit code 1\n",
        "$ no-such-program\n",
    ],
)
def test_an_example_that_is_wrong_fails(console: Console, text: str) -> None:
    with pytest.raises(AssertionError):
        _run(console, text)


def test_what_an_example_leaves_running_is_ended(console: Console, tmp_path: Path) -> None:
    _run(console, "$ sleep 1000 & echo $! >pid\n")
    process = Path("/proc", (tmp_path / "work/pid").read_text().strip())
    assert process.exists()
    console.close()
    # No process of this test waits for it: as a zombie it is as good as gone.
    while process.exists() and process.joinpath("stat").read_text().split()[2] != "Z":
        pass


@pytest.mark.slow
def test_a_session_is_typed_once_and_python_finds_what_it_left(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup:\n$ mkdir set\n-->\n```console\n$ mkdir made\n```\n```python\nopen('made/x', 'w').close()\n```\n"
    )
    follow_twice(sys.executable, page, tmp_path / "root")

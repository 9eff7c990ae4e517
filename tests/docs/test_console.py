# SPDX-License-Identifier: Apache-2.0
"""The runner of the documents' examples finds examples that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import Console, environment, steps


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

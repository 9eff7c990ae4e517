# SPDX-License-Identifier: Apache-2.0
"""The guide's table of keys: each part of each cell has tests that exist, or a reason why it has none."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.pages import PROJECT
from tests.frameworks.keys_table import ROWS, Unasked, place_of

GUIDE = PROJECT / "docs/guides/frameworks.md"
#: What stands between the parts of a cell.
_BETWEEN = re.compile(r"(?:[\s,.;|]|\band\b|\bor\b|\bNot shared:)*")


def _table() -> dict[str, str]:
    """Returns the rows of the table, by their titles: all cells in one text."""
    section = GUIDE.read_text().partition("## Keys that may be shared")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if re.match(r"\| \w", line)]
    return dict(rows)


def _tests() -> Iterator[str]:
    for parts in ROWS.values():
        for _, *tests in parts:
            yield from (test for test in tests if isinstance(test, str))


def test_each_row_of_the_table_is_here() -> None:
    assert ROWS.keys() == _table().keys()


@pytest.mark.parametrize("row", ROWS)
def test_each_part_of_each_cell_has_a_test_or_a_reason(row: str) -> None:
    left = _table()[row]
    for part, *tests in ROWS[row]:
        left = left[_BETWEEN.match(left).end() :]  # type: ignore[union-attr]  it matches nothing, too
        assert left.startswith(str(part)), f"no test is named for: {left:.80}"
        assert tests
        assert all(isinstance(test, str) or test.why for test in tests)
        left = left.removeprefix(str(part))
    assert _BETWEEN.fullmatch(left), f"no test is named for: {left:.80}"


@cache
def _names_in(path: str) -> frozenset[str]:
    tree = ast.parse((PROJECT / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_all_tests_that_are_named_are_there() -> None:
    places = [place_of(test) for test in _tests()]
    assert [(path, name) for path, name, _ in places if name not in _names_in(path)] == []


@pytest.mark.long
def test_all_cases_that_are_named_are_collected() -> None:
    paths = sorted({place_of(test)[0] for test in _tests()})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    said = subprocess.run(
        [*command, "-m", "long or not long", *paths], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    collected = {*said.stdout.splitlines()}
    wanted = (
        "::".join(place_of(test)[:2]) + (f"[{words}]" if (words := place_of(test)[2]) else "") for test in _tests()
    )
    bare = {line.partition("[")[0] for line in collected}
    assert [case for case in wanted if case not in (collected if "[" in case else bare)] == []


def test_what_is_missing_is_found() -> None:
    assert "test_no_such" not in _names_in(place_of("keys: test_no_such[words]")[0])
    assert Unasked("a reason").why

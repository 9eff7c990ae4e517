# SPDX-License-Identifier: Apache-2.0
"""The pages of the internals name only what there is: files, and functions, classes, constants and tests in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PROJECT

INTERNALS = PROJECT / "docs/internals"
MAP = INTERNALS / "map.md"
#: A path, and perhaps names in that file.
_PLACE = re.compile(r"`((?:lockcache|daemon|stress|tests|pyproject|importlinter)[\w/.]*)(?::\s([\w.,\s]+))?`")

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in MAP.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| rule ")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_a_module_and_a_test_and_what_is_in_them(row: list[str]) -> None:
    _, module, test = row
    for cell in (module, test):
        places = _PLACE.findall(cell)
        assert places
        assert not _PLACE.sub("", cell).strip(", "), "there is more in the cell than places"
        assert list(_missing(places)) == []
    assert all(path.startswith("tests/") for path, _ in _PLACE.findall(test))


@pytest.mark.parametrize("page", sorted(INTERNALS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_names_what_is_there(page: Path) -> None:
    assert list(_missing([place for place in _PLACE.findall(page.read_text()) if place[1]])) == []


def test_each_rule_is_there_once() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_what_is_not_there_is_found() -> None:
    places = _PLACE.findall(
        "`lockcache/no_such.py`, `lockcache/single_flight.py: take_off, gone`, "
        "`lockcache/single_flight.py: Flight.gone`"
    )
    assert list(_missing(places)) == [
        "lockcache/no_such.py",
        "lockcache/single_flight.py: gone",
        "lockcache/single_flight.py: Flight.gone",
    ]


def _missing(places: list[tuple[str, str]]) -> Iterator[str]:
    for path, names in places:
        if not (PROJECT / path).is_file():
            yield path
        else:
            wanted = [name.strip() for name in names.split(",") if name.strip()]
            yield from (f"{path}: {name}" for name in wanted if name not in _names_in(path))


@cache
def _names_in(path: str) -> frozenset[str]:
    return frozenset(_names(ast.parse((PROJECT / path).read_text()).body))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{node.name}.")
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))

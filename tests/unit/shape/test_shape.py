# SPDX-License-Identifier: Apache-2.0
"""The counts of ``make shape``: each finds what it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shape.code import _components, code_lines, function_lengths, special_cases
from tests.shape.operations import passed


def _outer() -> int:
    return sum(_inner(number) for number in range(3))


def _inner(number: int) -> int:
    return number


def _module(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "module.py"
    path.write_text(text)
    return path


def test_functions_and_calls_are_counted_and_those_without_a_name_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.shape.operations._ROOMS", (__file__,))
    found = passed(_outer)
    assert (found.functions, found.calls) == (2, 4)
    assert found.nameless > 0


def test_lines_of_code_are_those_without_docstrings_comments_and_blanks(tmp_path: Path) -> None:
    text = '"""Of two\nlines."""\n\n# A comment.\nx = """not a\ndocstring"""\n\n\n'
    text += 'def f():\n    """One."""\n    return x  # here\n'
    path = _module(tmp_path, text)
    assert code_lines(path) == 4
    assert function_lengths([path]) == [2]


def test_a_condition_counts_once_for_each_name_that_it_asks_for(tmp_path: Path) -> None:
    text = "a = layout.is_network\nif layout.is_network and not is_shared:\n    b = 1 if layout.is_nfs else is_fuse\n"
    assert special_cases([_module(tmp_path, text)]) == 3


def test_circles_are_found_and_a_line_is_none() -> None:
    assert _components({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    found = _components({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e"}})
    assert sorted(map(sorted, found)) == [["b", "c"], ["e", "f"]]

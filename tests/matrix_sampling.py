# SPDX-License-Identifier: Apache-2.0
"""Samples of a matrix: `make test` runs cells of each row and each column, `make test-rest` the other cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

EXHAUSTIVE = pytest.mark.exhaustive


def diagonals(rows: Iterable[Any], columns: Iterable[Any], step: int) -> list[Any]:
    """Returns all pairs, for ``parametrize``; of every ``step`` diagonals all but one are marked as exhaustive.

    Rows and columns may be ``pytest.param`` with one or more values. With at least ``step`` of each, no row and no
    column is left out.
    """
    return [
        _join(row, column, [EXHAUSTIVE] if (i + j) % step else [])
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


def all_but(kept: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Returns all cases, for ``parametrize``; those that are not ``kept`` are marked as exhaustive."""
    kept = list(kept)
    return [pytest.param(case, marks=[] if case in kept else [EXHAUSTIVE]) for case in cases]


def _join(row: Any, column: Any, marks: list[Any]) -> Any:
    first, second = _as_param(row), _as_param(column)
    name = None
    if first.id is not None or second.id is not None:
        name = "-".join(str(each.id or "-".join(map(str, each.values))) for each in (first, second))
    return pytest.param(*first.values, *second.values, marks=[*first.marks, *second.marks, *marks], id=name)


def _as_param(case: Any) -> Any:
    return case if hasattr(case, "values") and hasattr(case, "marks") else pytest.param(case)

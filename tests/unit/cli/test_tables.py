# SPDX-License-Identifier: Apache-2.0
"""Tables: the same columns, aligned, that rich would draw; wrapped where the terminal ends, and never cut short."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockcache.cli.output import paint
from lockcache.cli.tables import align, width_of

ROWS = [
    ("kernel", "code (B)", "registers"),
    ("gemm<float>", "12345", "-"),
    ("日本語カーネル", "7", "255"),
    ("e\u0301te\u0301", "", "0"),
]


def by_rich(rows: list[tuple[str, ...]], numbers: set[int]) -> list[str]:
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in range(len(rows[0])):
        table.add_column(justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=1000).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("numbers", [set(), {1, 2}])
def test_a_table_is_the_one_that_rich_draws(numbers: set[int]) -> None:
    lines = ["  ".join(line).rstrip() for lines in align(ROWS, numbers) for line in lines]
    assert lines == by_rich(ROWS, numbers)


def test_the_last_column_is_wrapped_at_the_width_and_nothing_of_it_is_lost() -> None:
    words = "   " + " ".join(f"word{number}" for number in range(30)) + " /a/path/" + "x" * 60
    [[*lines]] = align([("check", "good", words)], width=60)
    assert len(lines) > 4
    assert all(sum(map(width_of, line)) + 4 <= 60 for line in lines)
    assert "".join(text.strip() for _, _, text in lines).replace(" ", "") == words.replace(" ", "")
    assert all(text.startswith("   ") for _, _, text in lines)
    assert [check.strip() for check, _, _ in lines] == ["check", *[""] * (len(lines) - 1)]


WIDE = st.characters(categories=("L", "M", "N", "P", "S"))


@given(st.lists(st.text(WIDE | st.just(" "), max_size=90), min_size=1, max_size=3), st.integers(1, 60))
def test_whatever_is_wrapped_fits_and_is_whole(texts: list[str], width: int) -> None:
    for [*lines], text in zip(align([("a", text) for text in texts], width=width), texts, strict=True):
        assert all(width_of(part) <= max(width - 3, 20) for _, part in lines)
        assert len({width_of(part) for _, part in lines}) == 1
        assert "".join(part for _, part in lines).replace(" ", "") == text.replace(" ", "")


def test_cells_are_counted_as_terminals_do() -> None:
    texts = ["abc", "äöü", "日本", "한국", "e\u0301", "\uff26ull", "…", "─", "🙂", ""]
    assert [width_of(text) for text in texts] == [cell_len(text) for text in texts]


@pytest.mark.parametrize("name, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_styles_are_left_out_where_nobody_wants_them(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", "bold red") == "\x1b[31m\x1b[1mx\x1b[0m"
    monkeypatch.setenv(name, value)
    assert paint("x", "bold red") == "x"

# SPDX-License-Identifier: Apache-2.0
"""Tables: aligned columns of text, measured in the cells that a terminal takes for each character. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

GAP = "  "

# A column of fewer cells is not worth wrapping: the terminal does it.
_LEAST_CELLS = 20


def width_of(text: str) -> int:
    """Returns the number of cells that a terminal takes for a text."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0  # an accent is put on what is in front of it
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int) -> str:
    """Returns a text of exactly so many cells: cut, or filled with spaces."""
    kept = _beginning(text, width)
    return kept + " " * (width - width_of(kept))


def _beginning(text: str, width: int) -> str:
    """Returns as much of a text as takes no more cells. What is put on a character stays with it."""
    for index, character in enumerate(text):
        width -= _cells(character)
        if width < 0:
            return text[:index]
    return text


def align(
    rows: Sequence[Sequence[str]], numbers: Collection[int] = (), width: int | None = None
) -> list[list[tuple[str, ...]]]:
    """Returns the lines of each row, as cells of equal width in each column. Nothing is cut short.

    Columns in ``numbers`` are aligned to the right. ``width``: where to wrap the last column; ``None`` for nowhere.
    """
    *widths, last = (max(map(width_of, column)) for column in zip(*rows, strict=True))
    room = last if width is None else width - sum(each + len(GAP) for each in widths)
    widths.append(min(last, max(room, _LEAST_CELLS)))

    def padded(line: Sequence[str]) -> tuple[str, ...]:
        sized = enumerate(zip(line, widths, strict=True))
        return tuple(_pad(cell, size, is_right=column in numbers) for column, (cell, size) in sized)

    return [[padded(line) for line in _wrapped(row, widths[-1])] for row in rows]


def _wrapped(row: Sequence[str], room: int) -> list[Sequence[str]]:
    """Returns the lines of a row whose last cell is wrapped; further lines begin where its text does."""
    *others, text = row
    if width_of(text) <= room:
        return [row]
    parts = _lines(text, room)
    return [(*others, parts[0]), *((*("" for _ in others), part) for part in parts[1:])]


def _lines(text: str, room: int) -> list[str]:
    """Returns the lines of a text, broken at spaces; a word that takes a line alone is broken where the line ends."""
    words = text.lstrip(" ")
    indent = text[: min(len(text) - len(words), room // 2)]
    lines = [indent]
    for word in re.findall(" *[^ ]+", words):
        left = word
        if lines[-1] != indent and width_of(lines[-1] + word) > room >= width_of(indent + word.lstrip(" ")):
            lines.append(indent)
            left = word.lstrip(" ")
        while width_of(lines[-1] + left) > room:
            part = _beginning(left, room - width_of(lines[-1]))
            lines[-1] += part
            left = left[len(part) :].lstrip(" ")
            lines.append(indent)
        lines[-1] += left
    return lines


def _pad(cell: str, width: int, *, is_right: bool) -> str:
    spaces = " " * (width - width_of(cell))
    return spaces + cell if is_right else cell + spaces

# SPDX-License-Identifier: Apache-2.0
"""Drawings of an illegal history, a row per process and time to the right: text for a log, a page for a browser."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from lockcache_stress.judge.histories import Reduced
from lockcache_stress.judge.operations import Kind, Operation, Value

_COLUMNS: Final = 72
_ROW_PIXELS: Final = 34
_WIDTH_PIXELS: Final = 1100
_LABEL_PIXELS: Final = 130
_LETTER_PIXELS: Final = 7

_WORDS: Final = {
    Kind.PUT: "put",
    Kind.DROPPED: "put, dropped",
    Kind.HIT: "get gave",
    Kind.MISS: "get gave nothing",
    Kind.REMOVED: "removed",
    Kind.ABSENT: "delete found nothing",
    Kind.HIT_UNKNOWN: "get gave some value",
}
_COLOURS: Final = {Kind.PUT: "#2563eb", Kind.DROPPED: "#9333ea", Kind.REMOVED: "#d97706"}
_READ_COLOUR: Final = "#059669"


def as_text(reduced: Reduced) -> str:
    """Draw a part as lines of at most 120 columns: the values held before, then one row for each operation."""
    begin, end = _span(reduced.operations)
    lines = [f"held before: {_held(reduced)}; {(end - begin) / 1000:,.0f} us in all"]
    for each in reduced.operations:
        left = _column(each.begin_ns, begin, end)
        right = max(left + 1, _column(end if each.is_open else each.end_ns, begin, end))
        bar = "[" + "-" * (right - left - 1) + (">" if each.is_open else "]")
        mark = "  <-- cannot be" if each is reduced.impossible else ""
        lines.append(f"{each.process[:12]:>12} {' ' * left}{bar} {describe(each)}{mark}")
    return "\n".join(lines)


def as_svg(reduced: Reduced) -> str:
    """Draw a part as SVG for a page; its text has the colour of the page."""
    begin, end = _span(reduced.operations)
    processes = sorted({each.process for each in reduced.operations})
    rows = {process: number for number, process in enumerate(processes)}
    width, height = _LABEL_PIXELS + _WIDTH_PIXELS + 20, _ROW_PIXELS * (len(processes) + 1)
    shapes = [
        f'<text x="4" y="{_ROW_PIXELS * row + 22}">{html.escape(process)}</text>' for process, row in rows.items()
    ]
    shapes += [_bar(each, rows[each.process], begin, end, each is reduced.impossible) for each in reduced.operations]
    return f'<svg class="timeline" role="img" width="{width}" height="{height}">{"".join(shapes)}</svg>'


def explain(reduced: Reduced) -> str:
    """Explain the drawing in words."""
    begin, end = _span(reduced.operations)
    return (
        f"Held before: {_held(reduced)}. {(end - begin) / 1000:,.0f} microseconds in all. "
        "The operation in red cannot have ended as it did."
    )


def as_html(reduced: Reduced, title: str) -> str:
    """Draw a part as a whole page, which needs no other file."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        "<style>body{font:14px system-ui;margin:2em;color-scheme:light dark}svg{font:12px system-ui;fill:currentColor}"
        "pre{overflow:auto}</style>"
        f"<h1>{html.escape(title)}</h1><p>{html.escape(explain(reduced))}</p>{as_svg(reduced)}"
        f"<pre>{html.escape(as_text(reduced))}</pre></html>\n"
    )


def describe(operation: Operation) -> str:
    """Describe one operation in words."""
    words = _WORDS[operation.kind]
    value = "" if operation.value is None else f" {_name(operation.value)}"
    return words + value + (", never ended" if operation.is_open else "")


def _bar(operation: Operation, row: int, begin: int, end: int, is_impossible: bool) -> str:
    left = _LABEL_PIXELS + _WIDTH_PIXELS * _share(operation.begin_ns, begin, end)
    right = _LABEL_PIXELS + _WIDTH_PIXELS * _share(end if operation.is_open else operation.end_ns, begin, end)
    colour = "#dc2626" if is_impossible else _COLOURS.get(operation.kind, _READ_COLOUR)
    top, words = _ROW_PIXELS * row + 6, html.escape(describe(operation))
    # A name that is longer than its bar would cover the next name, and is shown on hovering only.
    has_room = is_impossible or right - left > _LETTER_PIXELS * len(words)
    name = f'<text x="{left + 3:.1f}" y="{top + 15}">{words}</text>' if has_room else ""
    return (
        f'<g><title>{words}, {(operation.begin_ns - begin) / 1000:,.1f} us on</title><rect x="{left:.1f}" y="{top}" '
        f'width="{max(2.0, right - left):.1f}" height="20" rx="3" fill="{colour}" fill-opacity="0.35" '
        f'stroke="{colour}"/>{name}</g>'
    )


def _span(operations: Sequence[Operation]) -> tuple[int, int]:
    begin = min(each.begin_ns for each in operations)
    return begin, max([begin + 1, *(each.end_ns for each in operations if not each.is_open)])


def _share(at: int, begin: int, end: int) -> float:
    return min(1.0, max(0.0, (at - begin) / (end - begin)))


def _column(at: int, begin: int, end: int) -> int:
    return round(_COLUMNS * _share(at, begin, end))


def _held(reduced: Reduced) -> str:
    return " or ".join(sorted("nothing" if value is None else _name(value) for value in reduced.initially))


def _name(value: Value) -> str:
    return f"w{value.writer}#{value.serial}"

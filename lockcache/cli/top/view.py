# SPDX-License-Identifier: Apache-2.0
"""The picture of ``lockcache top``: a block for each directory, made to fit. Pure.

Decides what is left out where there is little room: columns by their rank, the beginnings of paths, the last entries,
then whole directories, which are counted. No line is wider than asked for, and there are no more lines than that.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lockcache.cli.output import elapsed, plain, span
from lockcache.cli.tables import GAP, fit, width_of
from lockcache.cli.top.sample import Look
from lockcache.filestream.inspect import UNKNOWN
from lockcache.lowlevel import Described
from lockcache.sizes import counted, format_size

_NAME: Final = 12
_LONGEST_LABEL: Final = 40
_BAR: Final = 20

_HELP: Final = (
    "q or Ctrl-C quits, ? shows and hides this.",
    "HIT/S, MISS/S, PUT/S: as programs report them, some only at their end. EVICT/S: the daemon's too.",
    "WAIT/S: hits that were served after waiting for another one's compilation; they are among HIT/S.",
    "hits: the share of lookups that programs reported. saved: what compiling those took. staged: writes under way.",
    "LATEST: used last. USED: how long ago. COST: what compiling took.",
)


class Line(NamedTuple):
    """One line, and how it stands out: the name of a style, or nothing."""

    text: str
    style: str = ""


def draw(
    looks: Sequence[Look], width: int, height: int | None, interval: float | None, *, is_helping: bool = False
) -> list[Line]:
    """Returns the lines of the view. ``height``: ``None`` for no limit; ``interval``: ``None`` if it is drawn once."""
    lines = [Line(_title(width, interval), "reverse")]
    if is_helping:
        lines += [Line(text) for paragraph in _HELP for text in textwrap.wrap(paragraph, width)]
    heads = [_head(seen, width) for seen in looks]
    left = None if height is None else height - len(lines)
    shown = len(heads)
    if left is not None:
        shown = _how_many([len(head) for head in heads], left)
    rest = len(heads) - shown
    tables = _rows([len(head) for head in heads[:shown]], left if left is None else left - bool(rest))
    for seen, head, rows in zip(looks[:shown], heads, tables, strict=False):
        lines += [*head, *_table(seen.newest[:rows], width)]
    if rest:
        more = counted(rest, "more directory", "more directories")
        lines.append(Line(f"and {more}, for which there is no room"))
    return [Line(fit(text, min(width_of(text), width)), style) for text, style in lines][:height]


def shorten_path(path: str, width: int) -> str:
    """Returns a path that fits: cut at its beginning, at a folder if possible, else within its last name."""
    shown, dots = plain(path), plain("…")
    if len(dots) > 1:  # this terminal has no such character
        dots = "..."
    if width_of(shown) <= width:
        return shown
    parts = shown.split("/")
    for first in range(1, len(parts)):
        shorter = "/".join([dots, *parts[first:]])
        if width_of(shorter) <= width:
            return shorter
    name = parts[-1]
    while name and width_of(dots + name) > width:
        name = name[1:]
    return dots + name


def _title(width: int, interval: float | None) -> str:
    clock = time.strftime("%H:%M:%S")
    if interval is None:
        return f"lockcache top  {clock}"
    keys = "q quits  ? help"
    left = ""
    # The keys stay longest: who does not see how it ends is caught.
    for left in (f"lockcache top  {clock}  every {span(int(interval * 1e9))}", f"top  {clock}", "top", ""):
        if width_of(left) + len(GAP) + len(keys) <= width:
            break
    return left + " " * (width - width_of(left) - len(keys)) + keys


def _head(seen: Look, width: int) -> list[Line]:
    if seen.gone is not None:
        words = f"gone: {plain(seen.gone)}"
        return [Line(shorten_path(seen.path, width), "bold"), Line(f"{GAP}{words}", "red")]
    kept = f"daemon {plain(seen.daemon)}" if seen.daemon else "no daemon"
    who = f"{GAP}{seen.layout}, {kept}"
    room = width - width_of(who)
    if room < min(width_of(plain(seen.path)), width // 2):
        who = f"{GAP}{seen.layout}"
        room = width - width_of(who)
    cap, held = seen.max_size_bytes, format_size(seen.bytes)
    full = f"{held}, no cap"
    if cap:
        full = f"{held} of {format_size(cap)} {_bar(seen.bytes / cap)} {seen.bytes / cap:.1%}"
        if width_of(GAP + full) > width:
            full = f"{held} of {format_size(cap)} {seen.bytes / cap:.1%}"
    ratio = "-" if seen.hit_ratio is None else f"{seen.hit_ratio:.1%}"
    entries = counted(seen.entries, "entry")
    counts = [full, entries, f"{seen.staged_writes} staged", f"hits {ratio}"]
    if seen.saved_ns:
        counts.append(f"saved {span(seen.saved_ns)}")
    rates = [f"{name} {seen.rates[key]:.1f}" for key, name in _RATES.items() if key in seen.rates]
    return [
        Line(shorten_path(seen.path, room) + who, "bold"),
        *(Line(GAP + text) for text in _joined(counts, width - len(GAP))),
        *(Line(GAP + text) for text in _joined(_sizes_by_namespace(seen), width - len(GAP))),
        *(Line(GAP + text) for text in _joined(rates, width - len(GAP))),
    ]


def _sizes_by_namespace(seen: Look) -> list[str]:
    if seen.namespaces.keys() <= {UNKNOWN}:
        return []
    return [f"{plain(name)} {format_size(size)}" for name, size in [*seen.namespaces.items()][:_MOST_NAMESPACES]]


_MOST_NAMESPACES: Final = 6
# With five digits each they fit into 80 columns.
_RATES: Final = {"hits": "HIT/S", "waits": "WAIT/S", "misses": "MISS/S", "puts": "PUT/S", "evictions": "EVICT/S"}


def _bar(share: float) -> str:
    filled = min(_BAR, round(share * _BAR))
    return f"[{'#' * filled}{'-' * (_BAR - filled)}]"


def _joined(parts: Sequence[str], width: int) -> list[str]:
    """Returns the lines, each with as many of the parts as fit."""
    lines: list[str] = []
    for part in parts:
        if lines and width_of(f"{lines[-1]}{GAP}{part}") <= width:
            lines[-1] += GAP + part
        else:
            lines.append(part)
    return lines


def _how_many(heads: Sequence[int], left: int) -> int:
    """Returns how many blocks fit, with a line for the number of those that do not, if there are any."""
    used = 0
    for number, lines in enumerate(heads):
        is_last = number == len(heads) - 1
        if used + lines + (not is_last) > left:
            return number
        used += lines
    return len(heads)


def _rows(heads: Sequence[int], left: int | None) -> list[int]:
    """Returns the number of entries that each block has room for, the same for all. Its heading takes a line."""
    if left is None:
        return [_MOST_ROWS] * len(heads)
    each = (left - sum(heads)) // max(1, len(heads))
    return [max(0, min(_MOST_ROWS, each - 1))] * len(heads)


_MOST_ROWS: Final = 10


class _Column(NamedTuple):
    head: str
    #: The lowest stays longest.
    rank: int
    text: Callable[[Described], str]


_COLUMNS: Final = (
    _Column("LATEST", 0, lambda entry: plain(entry.name)),
    _Column("SIZE", 1, lambda entry: format_size(entry.size_bytes)),
    _Column("USED", 2, lambda entry: elapsed(entry.last_use_ns)),
    _Column("COST", 7, lambda entry: "-" if entry.cost_ns is None else span(entry.cost_ns)),
    _Column("KIND", 4, lambda entry: plain(entry.kind or "-")),
    _Column("ARCH", 5, lambda entry: plain(entry.arch or "-")),
    _Column("COMPILER", 8, lambda entry: plain(entry.compiler or "-")),
    _Column("NAMESPACE", 6, lambda entry: plain(entry.namespace or "-")),
    _Column("KERNEL", 3, lambda entry: plain(entry.label or "-")),
)


def _table(entries: Sequence[Described], width: int) -> list[Line]:
    if not entries:
        return []
    rows = {column: [column.text(entry) for entry in entries] for column in _COLUMNS}
    for column, texts in rows.items():
        if column.head == "LATEST":
            # A hash says enough by its beginning, a path by its end.
            rows[column] = [shorten_path(text, _LONGEST_LABEL) if "/" in text else text[:_NAME] for text in texts]
        else:
            rows[column] = [fit(text, min(width_of(text), _LONGEST_LABEL)) for text in texts]
    widths = {column: max(width_of(text) for text in (column.head, *texts)) for column, texts in rows.items()}
    left, shown = width, set()
    for column in sorted(_COLUMNS, key=lambda each: each.rank):
        if all(text == "-" for text in rows[column]) or widths[column] + len(GAP) > left:
            continue  # says nothing, or has no room; a narrower one may
        shown.add(column)
        left -= widths[column] + len(GAP)
    columns = [column for column in _COLUMNS if column in shown]
    heads = "".join(f"{GAP}{fit(column.head, widths[column])}" for column in columns)
    lines = [
        "".join(f"{GAP}{fit(rows[column][number], widths[column])}" for column in columns)
        for number in range(len(entries))
    ]
    return [Line(text.rstrip()) for text in (heads, *lines)]

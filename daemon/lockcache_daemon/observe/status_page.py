# SPDX-License-Identifier: Apache-2.0
"""The status page: HTML made from the board, whole and without scripts, pictures or anything else to load.

Keeps the names of directories and programs from adding markup: every text from outside is escaped, in one place
(:func:`_text`). Reads the board and nothing else. Its style sheet is in the page itself.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from html import escape
from typing import Final

from lockcache import __version__
from lockcache.filestream.inspect import UNKNOWN
from lockcache.lowlevel import Counters, Slot
from lockcache.remote import ServerCounters, ServerSeen
from lockcache.sizes import counted, format_duration, format_size
from lockcache_daemon.observe.board import Board, DirectoryView, Limits, shown
from lockcache_daemon.observe.charts import draw_bytes, draw_evictions, draw_hit_ratio
from lockcache_daemon.observe.page_style import PAGE_STYLE
from lockcache_daemon.observe.top_entries import Standout, StandoutsSeen

_many = partial(counted, grouping=",")

#: The page reloads itself so often: a sample's time.
RELOAD_SECONDS: Final = 15

# Characters: a column of three.
_SHOWN_OF_A_PATH: Final = 28

# Rows.
_MOST_SUMS: Final = 12

# A page for more directories shows figures, without charts and lists: else it would be megabytes, each time.
_MOST_IN_FULL: Final = 50


def render_page(board: Board) -> str:
    """Render the whole page."""
    now, views, problems = time.time(), board.directories, board.problems()
    is_full = len(views) <= _MOST_IN_FULL
    cards = "".join(_card(view, number, now, is_full=is_full) for number, view in enumerate(views))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="{RELOAD_SECONDS}">'
        f"<title>{_text(_title(problems, views))}</title><style>{_STYLE}</style></head><body>"
        f"{_header(board, problems, now)}{_overview(views)}{cards}{_footer()}</body></html>\n"
    )


def _title(problems: Sequence[str], views: Sequence[DirectoryView]) -> str:
    state = _count(len(problems), "problem", "problems") if problems else "all well"
    return f"{state}: lockcache-daemon on {socket.gethostname()}, {_count(len(views), 'directory', 'directories')}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _header(board: Board, problems: Sequence[str], now: float) -> str:
    pill = _pill("bad", "problems") if problems else _pill("ok", "all well")
    started = datetime.fromtimestamp(board.started).astimezone().isoformat(" ", "seconds")
    since = f"since {started} ({ago(now - board.started)})"
    who = f"on {socket.gethostname()}, pid {board.pid}, version {__version__}, {since}"
    listed = "".join(f"<li>{_text(problem)}</li>" for problem in problems)
    wrong = f'<ul class="bad" id="problems">{listed}</ul>' if problems else ""
    return f'<header><h1>lockcache-daemon</h1>{pill}<span class="dim">{_text(who)}</span></header>{wrong}'


def _footer() -> str:
    return (
        '<footer class="dim"><a href="/metrics">metrics</a> · <a href="/status.json">status.json</a> · '
        f'<a href="/healthz">healthz</a> · reloads every {RELOAD_SECONDS} s</footer>'
    )


def _overview(views: Sequence[DirectoryView]) -> str:
    """Render a row for each directory, where there are several: their cards take a screen each."""
    if len(views) < 2:
        return ""
    rows = "".join(_overview_row(view, number) for number, view in enumerate(views))
    head = "".join(f'<th class="number">{each}</th>' for each in ("held", "entries", "evicted", "hit ratio"))
    return f'<section class="overview"><table><tr><th>directory</th><th></th>{head}</tr>{rows}</table></section>'


def _overview_row(view: DirectoryView, number: int) -> str:
    ratio = view.clients.hit_ratio
    cells = (
        _of_limit(view.bytes, view.limits.max_size_bytes),
        f"{view.entries:,}",
        format_size(view.evicted_bytes),
        "-" if ratio is None else f"{ratio:.1%}",
    )
    figures = "".join(f'<td class="number">{_text(each)}</td>' for each in cells)
    name = f'<td class="name"><a href="#d{number}" title="{_text(view.root)}">{_text(_end_of(view.root))}</a></td>'
    return f"<tr>{name}<td>{_pill(*_PILLS[view.state])}</td>{figures}</tr>"


def _end_of(path: str) -> str:
    return path if len(path) <= _SHOWN_OF_A_PATH else f"…{path[-_SHOWN_OF_A_PATH:]}"


def _card(view: DirectoryView, number: int, now: float, *, is_full: bool) -> str:
    head = (
        f'<div class="head" id="d{number}"><h2><code>{_text(view.root)}</code></h2>{_pill(*_PILLS[view.state])}'
        f'<span class="dim">{_text(view.layout)}</span></div>'
    )
    limits = f'<p class="dim">{_text(_budgets(view.limits))}</p>'
    full = _sums(view) + _charts(view, now) + _lists(view.standouts, now)
    full = full if is_full else ""
    return f"<section>{head}{limits}{_tiles(view, now)}{full}</section>"


_PILLS: Final = {
    "problem": ("bad", "a step fails"),
    "standby": ("wait", "standby"),
    "kept": ("ok", "ok"),
    "opening": ("wait", "opening"),
}


def _budgets(limits: Limits) -> str:
    """Returns the limits of a directory, in words."""
    parts = []
    if limits.max_size_bytes is not None:
        parts.append(f"at most {format_size(limits.max_size_bytes)}")
    if limits.max_entries is not None:
        parts.append(f"at most {_many(limits.max_entries, 'entry')}")
    if limits.min_free is not None:
        parts.append(f"keep {limits.min_free} of the disk free")
    if limits.max_age_seconds is not None:
        parts.append(f"evict after {_whole(limits.max_age_seconds)} unused")
    parts += [f"of {name} at most {format_size(size)}" for name, size in limits.namespaces.items()]
    if limits.total_bytes is not None:
        parts.append(f"all directories together at most {format_size(limits.total_bytes)}")
    return f"limits: {'; '.join(parts) or 'none'}"


def _tiles(view: DirectoryView, now: float) -> str:
    cap, clients = view.limits.max_size_bytes, view.clients
    meter = ""
    if cap:
        share = min(100.0, 100.0 * view.bytes / cap)
        meter = f'<div class="meter"><i style="width: {share:.1f}%"></i></div>'
    entries = f"of {view.limits.max_entries:,}" if view.limits.max_entries else "no limit"
    last = "no sweep yet" if view.last_sweep is None else f"the last {ago(now - view.last_sweep)}"
    ratio = clients.hit_ratio
    tiles = [
        ("held", format_size(view.bytes), f"of {format_size(cap)}" if cap else "no cap", meter),
        ("entries", f"{view.entries:,}", entries, ""),
        (
            "evicted",
            format_size(view.evicted_bytes),
            f"{_many(view.evicted_entries, 'entry')}, {_many(view.sweeps, 'sweep')}, {last}",
            "",
        ),
        (
            "hit ratio",
            "not reported" if ratio is None else f"{ratio:.1%}",
            "no program has reported yet" if ratio is None else _lookups(clients),
            "",
        ),
    ]
    if clients.saved_ns:
        tiles.append(
            ("compiling saved", format_duration(clients.saved_ns / 1e9), "recorded compile time of all hits", "")
        )
    if view.compiled_again:
        tiles.append(("compiled again", f"{view.compiled_again:,}", "of a sample of the misses: stored before", ""))
    tiles += [_server_tile(seen) for seen in view.servers]
    if view.scrubbed_entries:
        found = f"{view.corrupt_entries:,} corrupt, {view.unreadable_entries:,} unreadable"
        tiles.append(("verified", f"{view.scrubbed_entries:,}", found, ""))
    return '<div class="tiles">' + "".join(_tile(*tile) for tile in tiles) + "</div>"


def _server_tile(seen: ServerSeen) -> tuple[str, str, str, str]:
    counters, ratio = seen.counters, seen.counters.hit_ratio
    more = f"{shown(seen.server)}: {_lookups(counters)}, {_many(counters.puts, 'put')}"
    for count, one, many in ((counters.lost_puts, "put lost", "puts lost"), (counters.errors, "error", "errors")):
        more += f", {_many(count, one, many)}" if count else ""
    figure = "not asked now" if seen.is_resting else "not reported" if ratio is None else f"{ratio:.1%} hits"
    return "server", figure, more, ""


def _lookups(counters: Counters | ServerCounters) -> str:
    waits = f" ({counters.waits:,} after waiting)" if counters.waits else ""
    return f"{_many(counters.hits, 'hit')}{waits}, {_many(counters.misses, 'miss', 'misses')}"


def _tile(title: str, figure: str, more: str, meter: str) -> str:
    below = f'<span class="dim">{_text(more)}</span>{meter}'
    return f'<div class="tile"><h3>{_text(title)}</h3><b>{_text(figure)}</b>{below}</div>'


def _charts(view: DirectoryView, now: float) -> str:
    held, evicted, ratio = (draw(view.history, now) for draw in (draw_bytes, draw_evictions, draw_hit_ratio))
    return (
        f'<div class="charts"><div class="wide"><h3>bytes held; dashed: the cap</h3>{held}</div>'
        f"<div><h3>evicted by the daemon, by minute</h3>{evicted}</div>"
        f"<div><h3>hit ratio as programs report it</h3>{ratio}</div></div>"
    )


def _lists(seen: StandoutsSeen, now: float) -> str:
    if not seen.shards_seen:
        return ""
    share = 100 * seen.shards_seen // seen.shards
    so_far = f'<p class="dim">{share} % of the entries were looked at so far</p>' if share < 100 else ""
    tables = (
        _table("largest", seen.largest, "size", lambda each: format_size(each.size_bytes), now),
        _table("longest unused", seen.oldest, "last use", lambda each: ago(now - each.last_use_ns / 1e9), now),
        _table(
            "most expensive to compile",
            seen.most_expensive,
            "compiled in",
            lambda each: format_duration(each.cost_ns / 1e9),
            now,
        ),
    )
    return f'<div class="lists">{"".join(tables)}</div>{so_far}'


def _sums(view: DirectoryView) -> str:
    """Render the sizes by namespace and by architecture, each where any entry states one."""
    seen = view.standouts
    so_far = " (not all read yet)" if seen.shards_seen < seen.shards else ""
    tables = "".join(
        f"<div><h3>by {word}{so_far}</h3>{_sum_table(word, held, limits)}</div>"
        for word, held, limits in (
            ("namespace", view.namespaces, view.limits.namespaces),
            ("architecture", view.architectures, {}),
        )
        if not held.keys() <= {UNKNOWN}
    )
    return f'<div class="lists">{tables}</div>' if tables else ""


def _sum_table(word: str, held: Mapping[str, Slot], limits: Mapping[str, int]) -> str:
    rows = "".join(
        f'<tr><td class="name">{_text(name)}</td><td class="number">{slot.entries:,}</td>'
        f'<td class="number">{_text(_of_limit(slot.bytes, limits.get(name)))}</td></tr>'
        for name, slot in [*held.items()][:_MOST_SUMS]
    )
    head = f'<tr><th>{word}</th><th class="number">entries</th><th class="number">size</th></tr>'
    return f"<table>{head}{rows}</table>"


def _of_limit(held: int, limit: int | None) -> str:
    return format_size(held) if limit is None else f"{format_size(held)} of {format_size(limit)}"


def _table(title: str, entries: Iterable[Standout], column: str, value: Callable[[Standout], str], now: float) -> str:
    rows = "".join(_row(each, value(each), now) for each in entries)
    if not rows:
        rows = '<tr><td class="dim" colspan="3">none known</td></tr>'
    head = f'<tr><th>entry</th><th></th><th class="number">{_text(column)}</th></tr>'
    return f"<div><h3>{_text(title)}</h3><table>{head}{rows}</table></div>"


def _row(each: Standout, value: str, now: float) -> str:
    hint = f"{each.name}, {format_size(each.size_bytes)}, looked at {ago(now - each.seen)}"
    return (
        f'<tr title="{_text(hint)}"><td class="name">{_text(_called(each))}</td>'
        f'<td class="dim">{_text(_what(each))}</td><td class="number">{_text(value)}</td></tr>'
    )


def _called(each: Standout) -> str:
    """Returns the entry's label; else the beginning of its hash, or the end of its path."""
    if each.label:
        return each.label
    return _end_of(each.name) if "/" in each.name else each.name[:12]


def _what(each: Standout) -> str:
    return " ".join(part for part in (each.kind, each.arch) if part)


def _pill(kind: str, words: str) -> str:
    return f'<span class="pill {kind}">{_text(words)}</span>'


def _text(words: str) -> str:
    """Escape text from anywhere for the page."""
    return escape("".join(each if each.isprintable() else "�" for each in shown(words)))


_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def ago(seconds: float) -> str:
    """Returns a time that has passed, in its largest unit."""
    if seconds < 1:
        return "now"
    return f"{_whole(seconds)} ago"


def _whole(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


_STYLE: Final = (
    PAGE_STYLE
    + """
header, .head { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; } p { margin: 6px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px 24px; margin: 14px 0; }
.tile b { display: block; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.meter { height: 6px; border-radius: 3px; background: var(--rule); margin-top: 6px; overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--accent); }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 12px 24px; margin-top: 16px; }
.charts .wide { grid-column: 1 / -1; }
.lists { display: grid; grid-template-columns: repeat(3, 1fr); gap: 12px 24px; margin-top: 16px; }
@media (max-width: 860px) { .charts, .lists { grid-template-columns: 1fr; } td.name { max-width: 15em; } }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--rule); stroke-width: 1; }
.tick { fill: var(--dim); font-size: 12px; paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
@media (max-width: 860px) { .wide .tick { font-size: 24px; } .zero { display: none; } }
@media (max-width: 500px) { .tick { font-size: 18px; } .wide .tick { font-size: 36px; } .odd { display: none; } }
.overview { overflow-x: auto; } .overview :is(td, th) { padding-right: 16px; } .overview td.name { max-width: none; }
.start { text-anchor: start; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.area { fill: var(--accent); opacity: .16; } .line { fill: none; stroke: var(--accent); stroke-width: 2; }
.cap { fill: none; stroke: var(--cap); stroke-width: 1.5; stroke-dasharray: 6 4; }
.bar, .dot { fill: var(--accent); }
table { width: 100%; font-size: 13px; } th, td { text-align: left; padding: 3px 8px 3px 0; white-space: nowrap; }
.lists > div { min-width: 0; } td.name { max-width: 10em; overflow: hidden; text-overflow: ellipsis; }
.number { text-align: right; padding-right: 0; } footer { margin-top: 20px; } ul { margin: 6px 0; padding-left: 20px; }
"""
)

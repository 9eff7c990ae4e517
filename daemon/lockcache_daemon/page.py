"""The status page: HTML made from the board, whole and without scripts, pictures or anything else to load.

Keeps whoever names a directory or a program from writing the page: every text from outside is escaped, in one place
(:func:`_text`). Reads the board and nothing else.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Final

from lockcache import __version__
from lockcache.sizes import format_size
from lockcache_daemon.board import Board, DirectoryView, shown
from lockcache_daemon.charts import draw_bytes, draw_evictions, draw_hit_ratio
from lockcache_daemon.standouts import Standout, StandoutsSeen
from lockcache_daemon.style import STYLE

__all__ = ["RELOAD_SECONDS", "render_page"]

#: The page reloads itself so often: a sample's time.
RELOAD_SECONDS: Final = 15

# A page for more directories than that shows figures, and no charts and lists: it would be megabytes, each time.
_MOST_IN_FULL: Final = 50


def render_page(board: Board) -> str:
    """The whole page."""
    now, views, problems = time.time(), board.directories, board.problems()
    is_full = len(views) <= _MOST_IN_FULL
    cards = "".join(_card(view, now, is_full=is_full) for view in views)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="{RELOAD_SECONDS}">'
        f"<title>{_text(_title(problems, views))}</title><style>{STYLE}</style></head><body>"
        f"{_header(board, problems, now)}{cards}{_footer()}</body></html>\n"
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


def _card(view: DirectoryView, now: float, *, is_full: bool) -> str:
    head = (
        f'<div class="head"><h2><code>{_text(view.root)}</code></h2>{_state(view)}'
        f'<span class="dim">{_text(view.layout)}</span></div>'
    )
    full = _charts(view, now) + _lists(view.standouts, now) if is_full else ""
    return f'<section class="card">{head}{_tiles(view, now)}{full}</section>'


def _state(view: DirectoryView) -> str:
    if view.problem is not None:
        return _pill("bad", "a step fails")
    if view.is_standby:
        return _pill("wait", "standby")
    return _pill("ok", "kept") if view.is_open else _pill("wait", "opening")


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
            f"{view.evicted_entries:,} entries, {view.sweeps:,} sweeps, {last}",
            "",
        ),
        (
            "hit ratio",
            "not reported" if ratio is None else f"{ratio:.1%}",
            "no program has reported yet" if ratio is None else f"{clients.hits:,} hits, {clients.misses:,} misses",
            "",
        ),
    ]
    if view.scrubbed_entries:
        found = f"{view.corrupt_entries:,} corrupt, {view.unreadable_entries:,} unreadable"
        tiles.append(("verified", f"{view.scrubbed_entries:,}", found, ""))
    return '<div class="tiles">' + "".join(_tile(*tile) for tile in tiles) + "</div>"


def _tile(title: str, figure: str, more: str, meter: str) -> str:
    below = f'<span class="dim">{_text(more)}</span>{meter}'
    return f'<div class="tile"><h3>{_text(title)}</h3><b>{_text(figure)}</b>{below}</div>'


def _charts(view: DirectoryView, now: float) -> str:
    held, evicted, ratio = (draw(view.history, now) for draw in (draw_bytes, draw_evictions, draw_hit_ratio))
    return (
        f'<div class="charts"><div class="wide"><h3>bytes held, last hour; dashed: the cap</h3>{held}</div>'
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
        _table("dearest to compile", seen.dearest, "compiled in", lambda each: took(each.cost_ns / 1e9), now),
    )
    return f'<div class="lists">{"".join(tables)}</div>{so_far}'


def _table(title: str, entries: Iterable[Standout], column: str, value: Callable[[Standout], str], now: float) -> str:
    rows = "".join(_row(each, value(each), now) for each in entries)
    if not rows:
        rows = '<tr><td class="dim" colspan="3">none known</td></tr>'
    head = f'<tr><th>entry</th><th></th><th class="number">{_text(column)}</th></tr>'
    return f"<div><h3>{_text(title)}</h3><table>{head}{rows}</table></div>"


def _row(each: Standout, value: str, now: float) -> str:
    hint = f"{each.name}, {format_size(each.size_bytes)}, looked at {ago(now - each.seen)}"
    return (
        f'<tr title="{_text(hint)}"><td class="name">{_text(each.name[:12])}</td>'
        f'<td class="dim">{_text(_what(each))}</td><td class="number">{_text(value)}</td></tr>'
    )


def _what(each: Standout) -> str:
    return " ".join(part for part in (each.kind, each.arch) if part)


def _pill(kind: str, words: str) -> str:
    return f'<span class="pill {kind}">{_text(words)}</span>'


def _text(words: str) -> str:
    """Text from anywhere, as text of the page."""
    return escape("".join(each if each.isprintable() else "�" for each in shown(words)))


_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def ago(seconds: float) -> str:
    """A time that has passed, in its largest unit."""
    if seconds < 1:
        return "now"
    return f"{_whole(seconds)} ago"


def took(seconds: float) -> str:
    """How long something took: as people say it, from microseconds to hours."""
    if seconds >= 60:
        return _whole(seconds)
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _whole(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

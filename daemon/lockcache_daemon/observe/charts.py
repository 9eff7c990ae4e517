# SPDX-License-Identifier: Apache-2.0
"""Charts: draw an hour of one directory as inline SVG. Pure: no script, nothing loaded, colours from the page's style.

Decides scales and words. Everything that goes into the markup is a number or is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from lockcache.sizes import counted, format_size
from lockcache_daemon.observe.history import HOUR_SECONDS, Rate, Sample, rates

# In pixels of the page at its widest, so that letters are of one size everywhere.
_WIDE, _NARROW = (1080.0, 220.0), (520.0, 150.0)
_LEFT: Final = 4.0
_RIGHT: Final = 12.0
# Room for a line of text in the size of the page on a phone: labels stand above their lines.
_TOP: Final = 28.0
_BOTTOM: Final = 30.0
# The spans that the time axis may have, in minutes, each a multiple of four. The first that fits all samples is used.
_SPANS_MINUTES: Final = (4, 8, 12, 20, 40, 60)
# Each bar and each ratio covers so many seconds: a bar of a minute is 11 pixels wide.
_BIN_SECONDS: Final = 60.0


class _Frame(NamedTuple):
    """The scales of a chart, for its times and its values."""

    now: float
    width: float
    height: float
    #: The value at the top.
    top_value: float
    #: The span of time.
    seconds: float = HOUR_SECONDS

    def x(self, time: float) -> float:
        share = 1 - (self.now - time) / self.seconds
        return _LEFT + (self.width - _LEFT - _RIGHT) * min(1.0, max(0.0, share))

    def y(self, value: float) -> float:
        return _TOP + (self.height - _TOP - _BOTTOM) * (1 - value / self.top_value)


def draw_bytes(history: Sequence[Sample], now: float) -> str:
    """Draw the bytes as an area, and the cap as a dashed line."""
    shown = _samples_within(history, now)
    top = max((max(each.bytes, each.max_size_bytes) for each in shown), default=0)
    frame = _Frame(now, *_WIDE, max(1.0, top * 1.08), _seconds(history, now))
    parts = [_grid(frame, (0, top / 2, top), format_size)]
    if shown:
        line = " L".join(f"{frame.x(each.time):.1f},{frame.y(each.bytes):.1f}" for each in shown)
        first, last, floor = frame.x(shown[0].time), frame.x(shown[-1].time), frame.y(0)
        parts.append(f'<path class="area" d="M{first:.1f},{floor:.1f} L{line} L{last:.1f},{floor:.1f} Z"/>')
        parts.append(f'<path class="line" d="M{line}"/>')
        parts.append(_steps(frame, shown))
    words = "bytes held over the last hour"
    if shown:
        words += f": now {format_size(shown[-1].bytes)}"
        words += f" of {format_size(shown[-1].max_size_bytes)}" if shown[-1].max_size_bytes else ", without a cap"
    return _svg(frame, words, parts)


def draw_evictions(history: Sequence[Sample], now: float) -> str:
    """Draw the bytes that the daemon evicted, with one bar for each minute."""
    bins = _binned(history, now, lambda rate: rate.evicted_bytes)
    entries = sum(_binned(history, now, lambda rate: rate.evicted_entries).values())
    top = max(bins.values(), default=0)
    frame = _Frame(now, *_NARROW, max(1.0, top * 1.08), _seconds(history, now))
    parts = [_grid(frame, (0, top), format_size)]
    for start, evicted in bins.items():
        if evicted and start + _BIN_SECONDS > now - frame.seconds:
            left, top_edge = frame.x(start) + 1, frame.y(evicted)
            width, height = max(1.0, frame.x(start + _BIN_SECONDS) - left - 1), frame.y(0) - top_edge
            parts.append(
                f'<rect class="bar" x="{left:.1f}" y="{top_edge:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
            )
    total = f"{format_size(int(sum(bins.values())))}, {counted(round(entries), 'entry')}"
    words = f"evicted by the daemon over the last hour: {total}"
    if not top:
        parts = [_nothing(frame, "nothing was evicted")]
    return _svg(frame, words, parts)


def draw_hit_ratio(history: Sequence[Sample], now: float) -> str:
    """Draw the share of hits in the lookups that programs reported, with a point for each minute that has lookups."""
    hits = _binned(history, now, lambda rate: rate.hits)
    misses = _binned(history, now, lambda rate: rate.misses)
    frame = _Frame(now, *_NARROW, 1.08, _seconds(history, now))
    parts = [_grid(frame, (0, 0.5, 1), lambda share: f"{share * 100:.0f} %")]
    command, commands = "M", []
    for start, count in hits.items():
        lookups = count + misses[start]
        if lookups:
            x, y = frame.x(start + _BIN_SECONDS / 2), frame.y(count / lookups)
            commands.append(f"{command}{x:.1f},{y:.1f}")
            parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2"/>')
        command = "L" if lookups else "M"  # no line over minutes without lookups
    parts.append(f'<path class="line" d="{" ".join(commands)}"/>')
    if not commands:
        parts = [_nothing(frame, "nothing was reported")]
    found, lost = sum(hits.values()), sum(misses.values())
    words = "hit ratio over the last hour: " + (f"{found / (found + lost):.1%}" if found + lost else "nothing reported")
    return _svg(frame, words, parts)


def _samples_within(history: Sequence[Sample], now: float) -> list[Sample]:
    return [each for each in history if now - HOUR_SECONDS <= each.time <= now]


def _seconds(history: Sequence[Sample], now: float) -> float:
    """Returns the span to draw, shorter than an hour while the daemon is young."""
    age = now - min((each.time for each in _samples_within(history, now)), default=now)
    return next((minutes * 60.0 for minutes in _SPANS_MINUTES if minutes * 60 >= age), HOUR_SECONDS)


def _binned(history: Sequence[Sample], now: float, value: Callable[[Rate], float]) -> dict[float, float]:
    """Returns the sums of the sixty minutes, the last one ending now. A rate counts for the minute of its middle."""
    count = int(HOUR_SECONDS / _BIN_SECONDS)
    first = now - HOUR_SECONDS
    sums = [0.0] * count
    for rate in rates(tuple(_samples_within(history, now))):
        middle = (rate.start + rate.end) / 2
        sums[min(count - 1, max(0, int((middle - first) / _BIN_SECONDS)))] += value(rate)
    return {first + number * _BIN_SECONDS: each for number, each in enumerate(sums)}


def _steps(frame: _Frame, shown: Sequence[Sample]) -> str:
    """Draw the cap in force as steps, with gaps where there was none."""
    commands: list[str] = []
    before = 0
    for each in shown:
        x, y = frame.x(each.time), frame.y(each.max_size_bytes)
        if not each.max_size_bytes:
            before = 0
            continue
        commands.append(f"H{x:.1f} V{y:.1f}" if before else f"M{x:.1f},{y:.1f}")
        before = each.max_size_bytes
    if commands and before:
        commands.append(f"H{frame.x(frame.now):.1f}")
    return f'<path class="cap" d="{" ".join(commands)}"/>' if commands else ""


def _grid(frame: _Frame, values: Iterable[float], label: Callable[[int], str] | Callable[[float], str]) -> str:
    parts = []
    for value in dict.fromkeys(values):
        y = frame.y(value)
        words = label(value if value <= 1 else int(value))  # type: ignore[arg-type]
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{frame.width - _RIGHT}" y2="{y:.1f}"/>')
        # On a small screen the lowest label would lie on those of the times, and every other time is enough.
        low = " zero" if not value else ""
        parts.append(f'<text class="tick start{low}" x="{_LEFT}" y="{y - 4:.1f}">{escape(words)}</text>')
    for quarter in range(5):
        minutes = round(frame.seconds / 60 * (4 - quarter) / 4)
        x, anchor = frame.x(frame.now - minutes * 60), {0: "start", 4: "end"}.get(quarter, "middle")
        words = f"-{minutes} min" if minutes else "now"
        odd = " odd" if quarter % 2 else ""
        parts.append(f'<text class="tick {anchor}{odd}" x="{x:.1f}" y="{frame.height - 5:.1f}">{words}</text>')
    return "".join(parts)


def _nothing(frame: _Frame, words: str) -> str:
    return f'<text class="tick middle" x="{frame.width / 2:.0f}" y="{frame.height / 2:.0f}">{escape(words)}</text>'


def _svg(frame: _Frame, words: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {frame.width:.0f} {frame.height:.0f}" role="img" aria-label="{escape(words)}">'
        f"<title>{escape(words)}</title>{''.join(parts)}</svg>"
    )

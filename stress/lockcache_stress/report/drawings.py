"""Drawings: bytes and latencies of a scenario, times and curves of a benchmark, as markup for a page or as a picture.

Apart from the page, since matplotlib is large: a page that may go without is made where matplotlib is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, Final

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from lockcache_stress.bench import BenchOutcome, Line
from lockcache_stress.report.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Draw,
    add_legend,
    as_png,
    as_svg,
    bytes_over_time,
    latencies,
)
from lockcache_stress.run import Outcome, Reportable

__all__ = ["draw_outcome", "draws", "picture"]

_COLOURS: Final = {"lockcache": BLUE, "cuda.core": GREEN, "diskcache": ORANGE, "JAX": PURPLE, "plain files": GREY}
_LABEL_LETTERS: Final = 18
# What a measurement calls our time.
_OURS_US: Final = ("ours_us", "many_us", "large_us")


def draw_outcome(outcome: Reportable, number: int) -> list[Markup]:
    """Returns all that is drawn of the page's run ``number``."""
    return [Markup(as_svg(draw, f"plot-{number}-{each}")) for each, draw in enumerate(_draws(outcome))]


def _draws(outcome: Reportable) -> Sequence[Draw]:
    if isinstance(outcome, Outcome):
        held = bytes_over_time(outcome.peaks, outcome.plan.max_size_bytes)
        return [held, latencies([("hit", outcome.gets), ("put", outcome.puts)])]
    return draws(outcome.lines) if isinstance(outcome, BenchOutcome) else []


def draws(lines: Sequence[Line]) -> list[Draw]:
    """All that these lines have to show; nothing for lines without times of several caches, and without curves."""
    times = {line.name: times_us(line) for line in lines}
    compared = {name: found for name, found in times.items() if len(found) > 1}
    found = [_bars(compared)] if compared else []
    curves = [line.numbers["curve"] for line in lines if line.numbers and "curve" in line.numbers]
    return [*found, *map(_curve, curves)]


def picture(outcomes: Sequence[Reportable]) -> bytes:
    """All of it as one PNG."""
    lines = [line for outcome in outcomes if isinstance(outcome, BenchOutcome) for line in outcome.lines]
    return as_png(draws(lines) or [_nothing])


def _nothing(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "no times of several caches, and no curves, were measured", ha="center")


def times_us(line: Line) -> dict[str, float]:
    """Microseconds by the cache's name; empty where the line is about something else."""
    numbers = line.numbers or {}
    ours = next((numbers[each] for each in _OURS_US if each in numbers), None)
    if ours is None:
        return {}
    named = {"lockcache": ours, "cuda.core": numbers.get("theirs_us"), **numbers.get("others_us", {})}
    named["plain files"] = numbers.get("floor_us")
    return {name: taken for name, taken in named.items() if taken is not None}


def _bars(compared: Mapping[str, Mapping[str, float]]) -> Draw:
    names = [name for name in _COLOURS if any(name in found for found in compared.values())]
    height = 0.8 / len(names)

    def draw(axes: Axes) -> None:
        for number, name in enumerate(names):
            there = [(row, found[name]) for row, found in enumerate(compared.values()) if name in found]
            places = [row + (number - (len(names) - 1) / 2) * height for row, _ in there]
            axes.barh(places, [taken for _, taken in there], height, label=name, color=_COLOURS[name])
        axes.set_xscale("log")
        axes.set_yticks(range(len(compared)), [fill(name, _LABEL_LETTERS) for name in compared])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(title="one operation (shorter is better)", xlabel="microseconds")
        add_legend(axes)

    return draw


def _curve(curve: Mapping[str, Any]) -> Draw:
    places = sorted({place for points in curve["points"].values() for place, _ in points})
    is_time = curve["unit"] == "us"

    def draw(axes: Axes) -> None:
        for name, points in curve["points"].items():
            across, up = zip(*points, strict=True)
            axes.plot(across, up, marker="o", ms=3.5, lw=1.4, label=name, color=_COLOURS.get(name, GREY))
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.xaxis.set_minor_locator(NullLocator())
        if is_time:
            axes.set_yscale("log")
        else:
            axes.axhline(1, color=RED, ls="--", lw=1.2, label="cap")
            axes.set_ylim(bottom=0)
        axes.set(title=f"{curve['what']} against {curve['over']}", xlabel=curve["over"])
        axes.set_ylabel("microseconds" if is_time else curve["unit"])
        add_legend(axes)

    return draw

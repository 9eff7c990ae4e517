# SPDX-License-Identifier: Apache-2.0
"""Plots of runs, with matplotlib: as SVG for a page, light or dark.

Plots bytes and latencies of a scenario, and what a start of a fleet costs. A module apart from the page, because
matplotlib is large, and some pages may be made without it. Figures are made without pyplot, which would change the
backend and the open figures of the process.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from lockcache_stress.run import Latencies, Outcome, Peaks, Reportable

# Without this call every element would be named like ns0:path, which no browser draws.
ET.register_namespace("", "http://www.w3.org/2000/svg")
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")


#: Colours that colour-blind readers can distinguish, readable on white and on black.
BLUE: Final = "#3b82f6"
ORANGE: Final = "#d97706"
GREEN: Final = "#059669"
RED: Final = "#dc2626"
GREY: Final = "#8b8b93"
# A placeholder for the colour of the text around the plot, which SVG can name and matplotlib cannot.
_INK: Final = "#010203"
_MIB: Final = 1 << 20
_SVG: Final = "http://www.w3.org/2000/svg"
# The width of a plot in inches.
_WIDTH: Final = 6.4
_HEIGHT: Final = 3.2
_BARS_A_DECADE: Final = 25
# Spacing for five names below a plot whose own labels take a third of its width.
_NARROW: Final[Any] = {"columnspacing": 0.9, "handlelength": 1.1, "handletextpad": 0.4}
_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: small, found by a search, and in the page's font
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "axes.titlelocation": "left",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _INK
    ),
}


#: Draws one plot.
Draw = Callable[[Axes], object]


def bytes_over_time(peaks: Peaks, cap_bytes: int) -> Draw:
    """Returns the plot of bytes on disk against the cap. A step lasts until the next sample."""

    def draw(axes: Axes) -> None:
        for samples, name, colour in (
            (peaks.disk, "on disk, writers stopped", BLUE),
            (peaks.accounted, "accounted for", GREEN),
            (peaks.statvfs, "in use, by statvfs", ORANGE),
        ):
            points = samples.points()
            if points:
                seconds, held = zip(*points, strict=True)
                axes.step(seconds, [each / _MIB for each in held], where="post", label=name, color=colour, lw=1.2)
        axes.axhline(cap_bytes / _MIB, color=RED, ls="--", lw=1.2, label="cap")
        for begin in peaks.begins_seconds[1:]:
            axes.axvline(begin, color=GREY, ls=":", lw=0.6, alpha=0.6)
        several = f" ({len(peaks.begins_seconds)} rounds, one after the other)" if peaks.begins_seconds else ""
        axes.set(title=f"bytes over time{several}", xlabel="seconds", ylabel="MiB", ylim=(0, None))
        add_legend(axes)

    return draw


def latencies(found: Sequence[tuple[str, Latencies]]) -> Draw:
    """Returns the plot of latencies: the share of operations of each kind over time, with median and 99th of 100."""

    def draw(axes: Axes) -> None:
        for (name, each), colour in zip(found, (BLUE, ORANGE, GREEN), strict=False):
            histogram = each.histogram()
            if not histogram:
                continue
            microseconds, counts = _coarser(histogram)
            shares = [100 * count / sum(counts) for count in counts]
            axes.step(microseconds, shares, where="mid", label=f"{name} ({sum(counts):,})", color=colour, lw=1.2)
            for percent, style in ((50, "-"), (99, ":")):
                axes.axvline(each.percentile_us(percent) or 0, color=colour, ls=style, lw=0.8, alpha=0.7)
        axes.set(title="latencies (lines: p50, dotted p99)", xlabel="microseconds", ylabel="% of operations")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        add_legend(axes)

    return draw


def _coarser(histogram: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Returns a histogram with bars so wide that it has a smooth shape also for few operations."""
    bars: dict[int, int] = {}
    for microseconds, count in histogram:
        bar = math.floor(_BARS_A_DECADE * math.log10(microseconds))
        bars[bar] = bars.get(bar, 0) + count
    filled = range(min(bars) - 1, max(bars) + 2)
    return [10 ** ((bar + 0.5) / _BARS_A_DECADE) for bar in filled], [bars.get(bar, 0) for bar in filled]


def add_legend(axes: Axes) -> None:
    """Add the legend below the plot: inside it would cover lines."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=5, fontsize=7.5, **_NARROW)


def as_svg(draw: Draw, name: str) -> str:
    """Returns a plot as ``<svg>`` for a page; its text and axes have the colour of the page.

    ``name`` is unique in the page: the names of the plot's parts begin with it, and no other names may.
    """
    buffer = io.BytesIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        _figure([draw]).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ET.fromstring(buffer.getvalue())
    _drop(root, f"{{{_SVG}}}metadata")
    _drop(root, f"{{{_SVG}}}style")
    for element in root.iter():
        for attribute, value in element.items():
            element.set(attribute, _at_home(attribute, value, name))
    del root.attrib["width"], root.attrib["height"]
    root.attrib.update({"class": "plot", "role": "img", "aria-label": name})
    return ET.tostring(root, encoding="unicode")


def fleet_svg(starts: Sequence[Mapping[str, Any]]) -> str:
    """Returns a plot as an SVG file, on white: requests and seconds over ranks in each way, for each share stored."""
    shares = sorted({start["stored"] for start in starts})
    quantities = (("all_requests", "requests to the server"), ("seconds", "seconds until the last rank is ready"))
    draws = [
        _fleet_curve([start for start in starts if start["stored"] == share], f"{share:.0%} stored", *quantity)
        for share in shares
        for quantity in quantities
    ]
    return _svg_file(draws, "fleet")


def orders_svg(traces: Sequence[Mapping[str, Any]]) -> str:
    """Returns a plot as an SVG file, on white: how much of what is possible orders of eviction save on each trace."""
    shares = [cache["share"] for cache in traces[0]["caches"]]
    return _svg_file([_orders_bars(traces, number, share) for number, share in enumerate(shares)], "orders")


def _orders_bars(traces: Sequence[Mapping[str, Any]], number: int, share: float) -> Draw:
    styles = {"lru": GREY, "cost": ORANGE, "s3-fifo": RED, "value": BLUE, "source": GREEN}
    width = 0.8 / len(styles)

    def draw(axes: Axes) -> None:
        caches = [trace["caches"][number] for trace in traces]
        for place, (order, colour) in enumerate(styles.items()):
            parts = [each[order]["saved_seconds"] / max(1e-9, each["at_most_saved_seconds"]) for each in caches]
            lefts = [at + width * (place - len(styles) / 2) for at in range(len(traces))]
            axes.bar(lefts, [part * 100 for part in parts], width, align="edge", label=order, color=colour)
        axes.set(
            title=f"a cache of {share:.0%} of all programs", ylabel="% of the most that can be saved", ylim=(0, 100)
        )
        axes.set_xticks(range(len(traces)), [trace["name"].replace(" of ", "\nof ") for trace in traces])
        add_legend(axes)

    return draw


def _svg_file(draws: Sequence[Draw], salt: str) -> str:
    buffer = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": salt}):
        _figure(draws).savefig(buffer, format="svg", facecolor="white", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _fleet_curve(starts: Sequence[Mapping[str, Any]], title: str, quantity: str, label: str) -> Draw:
    ranks = [start["ranks"] for start in starts]

    def draw(axes: Axes) -> None:
        styles = ((GREY, "-"), (ORANGE, "-"), (GREEN, "--"), (BLUE, "-"))  # the third may lie on the second
        for (colour, style), way in zip(styles, (way["way"] for way in starts[0]["ways"]), strict=True):
            up = [each[quantity] for start in starts for each in start["ways"] if each["way"] == way]
            if any(up):  # a logarithmic scale has no zero
                axes.plot(ranks, up, marker="o", ms=3.5, lw=1.4, ls=style, label=way, color=colour)
        axes.set(title=f"{title}: {label}", xlabel="ranks", xscale="log", yscale="log")
        axes.set_xticks(ranks, [f"{each:,}" for each in ranks])
        axes.xaxis.set_minor_locator(NullLocator())
        add_legend(axes)

    return draw


def _figure(draws: Sequence[Draw]) -> Figure:
    """Returns a figure of all plots. Requires: this module's style is in use."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(draws)), layout="constrained")
    for axes, draw in zip(figure.subplots(len(draws), squeeze=False).flat, draws, strict=True):
        draw(axes)
    return figure


def _drop(root: ET.Element, tag: str) -> None:
    for parent in list(root.iter()):
        for child in parent.findall(tag):
            parent.remove(child)


def _at_home(attribute: str, value: str, name: str) -> str:
    if attribute == "id":
        return f"{name}-{value}"
    if attribute.endswith("href"):
        return value.replace("#", f"#{name}-", 1)
    return value.replace("url(#", f"url(#{name}-").replace(_INK, "currentColor")


def draw_outcome(outcome: Reportable, number: int) -> list[Markup]:
    """Returns the plots of the page's run ``number``."""
    return [Markup(as_svg(draw, f"plot-{number}-{each}")) for each, draw in enumerate(_draws(outcome))]


def _draws(outcome: Reportable) -> Sequence[Draw]:
    if isinstance(outcome, Outcome):
        held = bytes_over_time(outcome.peaks, outcome.plan.max_size_bytes)
        return [held, latencies([("hit", outcome.gets), ("put", outcome.puts)])]
    return []

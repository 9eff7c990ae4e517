"""Drawings of a run's page, as markup: bytes and latencies of a scenario, times and curves of a benchmark.

Apart from the page, since matplotlib is large: a page that may go without is made where matplotlib is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from lockcache_stress.bench import BenchOutcome
from lockcache_stress.report.bench_plots import draws as draw_bench
from lockcache_stress.report.plots import Draw, as_svg, bytes_over_time, latencies
from lockcache_stress.run import Outcome, Reportable

__all__ = ["draw_outcome"]


def draw_outcome(outcome: Reportable, number: int) -> list[Markup]:
    """Returns all that is drawn of the page's run ``number``."""
    return [Markup(as_svg(draw, f"plot-{number}-{each}")) for each, draw in enumerate(_draws(outcome))]


def _draws(outcome: Reportable) -> Sequence[Draw]:
    if isinstance(outcome, Outcome):
        held = bytes_over_time(outcome.peaks, outcome.plan.max_size_bytes)
        return [held, latencies([("hit", outcome.gets), ("put", outcome.puts)])]
    return draw_bench(outcome.lines) if isinstance(outcome, BenchOutcome) else []

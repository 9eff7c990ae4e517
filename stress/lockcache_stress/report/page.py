# SPDX-License-Identifier: Apache-2.0
"""``--report FILE.html``: one page that needs no other file: verdicts, numbers, plots, and how to replay.

The template escapes every text from outside (names of directories, findings of workers); only the plots are passed as
markup. The page also has the outcome as JSON, in the element ``outcome``.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lockcache import __version__
from lockcache_daemon.observe import PAGE_STYLE
from lockcache_stress.bench import BenchOutcome
from lockcache_stress.judge import as_svg as draw_timeline, explain
from lockcache_stress.report.content import Ran, Written, printable, words_of
from lockcache_stress.run import Outcome, Reportable, Tabled

#: Draws a run, given its number on the page.
Draw = Callable[[Reportable, int], Sequence[Markup]]

_MOST_FINDINGS: Final = 20


def render_page(written: Written, draw: Draw = lambda outcome, number: ()) -> str:
    """Returns the whole page; without ``draw`` it has no plots."""
    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        written=written,
        sections=[_section(number, ran, draw) for number, ran in enumerate(written.runs)],
        when=time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        version=__version__,
        style=Markup(PAGE_STYLE),
        # No text in the JSON can end the script element, because every end in HTML begins with "<".
        outcome=Markup(json.dumps(_as_json(written)).replace("<", "\\u003c")),
    )


def _section(number: int, ran: Ran, draw: Draw) -> dict[str, Any]:
    """Returns one run, ready for the template."""
    outcome = ran.outcome
    found = outcome.findings
    lines = outcome.lines if isinstance(outcome, BenchOutcome) else []
    return {
        "number": number,
        "name": ran.name,
        "title": ran.title,
        "ok": outcome.ok,
        "checks": outcome.checks(),
        "lines": lines,  # a benchmark has lines instead of checks
        "peers": list(dict.fromkeys(name for line in lines for name in line.others)),
        "summary": outcome.summary(),
        "grids": outcome.grids if isinstance(outcome, Tabled) else (),
        "drawings": draw(outcome, number),
        "illegal": _illegal(outcome) if isinstance(outcome, Outcome) else None,
        "deaths": outcome.deaths,
        "findings": [words_of(each) for each in found[:_MOST_FINDINGS]],
        "findings_left_out": max(0, len(found) - _MOST_FINDINGS),
        "replay": shlex.join(ran.replay),
    }


def _illegal(outcome: Outcome) -> dict[str, Any] | None:
    """Returns the history that no register could have had, ready for the template; ``None`` if there is none."""
    if outcome.histories is None or outcome.histories.smallest is None:
        return None
    key, reduced = outcome.histories.smallest
    where = outcome.histories.smallest_in
    name = f"key {key}, {where}" if where else f"key {key}"
    return {"name": name, "explained": explain(reduced), "drawing": Markup(draw_timeline(reduced))}


def _as_json(written: Written) -> dict[str, Any]:
    return {
        "ok": written.ok,
        "machine": dict(written.machine),
        "skipped": dict(written.skipped),
        "cut_short": written.cut_short,
        "scenarios": [
            {**ran.outcome.as_json(), **({"place": ran.place} if ran.place else {}), "replay": list(ran.replay)}
            for ran in written.runs
        ],
    }

# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress bugs``, with click."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lockcache_stress.commands.shell import SECONDS, Shell, with_shell
from lockcache_stress.experiments import Proven, possible_bugs, prove
from lockcache_stress.run import Check, Grid, GridRow, Tabled
from lockcache_stress.trouble import BUGS


@click.command("bugs", short_help="plants bugs in the library: is each of them found?")
@click.argument("names", nargs=-1, type=click.Choice(list(BUGS)))
@click.option("--seconds", type=SECONDS, default=5.0, show_default=True, help="For each; up to 32 if it is not found.")
@with_shell("bugs")
def bugs_command(shell: Shell, names: tuple[str, ...], seconds: float) -> int:
    """Break the library in a known way, run the scenario that has to find it, and fail if it does not.

    NAMES are the bugs to plant; by default all whose scenario can be run here. `lockcache-stress SCENARIO --plant NAME`
    shows one in detail.

    \b
    lockcache-stress bugs no-digest --seconds 2
    lockcache-stress bugs --report bugs.html --junit bugs.xml
    """
    proven: list[Proven] = []
    replay = shell.replay(*names, "--seconds", f"{seconds:g}")
    with shell.finding(
        proven, "bugs", lambda: _tabulate(proven, shell.seed), replay, lambda _: [each.as_json() for each in proven]
    ) as show:
        proven.extend(prove(names or possible_bugs(), seconds, shell.seed, show))
    return shell.code


def _tabulate(proven: Sequence[Proven], seed: int) -> Tabled:
    columns = ("bug", "what it is", "scenario", "checks that failed")
    rows = [GridRow([each.name, each.bug.help, each.bug.scenario, _failed(each)], each.is_found) for each in proven]
    return Tabled(
        name="bugs",
        title=f"bugs: {len(proven)} planted, seed {seed}",
        lines=[
            Check(each.name, f"found by: {_failed(each)}", f"found by: {' or '.join(each.bug.found_by)}", each.is_found)
            for each in proven
        ],
        numbers={"seed": seed, "bugs": [each.as_json() for each in proven]},
        counts=[f"{len(proven):,}"],
        grids=[Grid("planted bugs", columns, rows)],
        findings=[
            {"error": f"{each.name} was planted in {each.bug.scenario} and not found: {each.bug.help}"}
            for each in proven
            if not each.is_found
        ],
    )


def _failed(each: Proven) -> str:
    return ", ".join(each.failed) or "none"

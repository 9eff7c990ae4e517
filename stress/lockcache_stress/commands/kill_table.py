# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress kill-table``, with click."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lockcache_stress.commands.shell import Shell, with_shell
from lockcache_stress.experiments import ACTIONS, OTHERS, Row, as_markdown, make_rows
from lockcache_stress.report import Written, print_tabled
from lockcache_stress.run import Check, Grid, GridRow, Tabled


@click.command("kill-table", short_help="SIGKILL at every step of put, evict, recount, lease, sweep: what survives?")
@click.argument("names", nargs=-1, type=click.Choice(list(ACTIONS)))
@click.option("--markdown", "as_text", is_flag=True, help="Print the page that is in the documents.")
@with_shell("kill-table", is_seeded=False)
def kill_table_command(shell: Shell, names: tuple[str, ...], as_text: bool) -> int:
    """Die in front of every call to the operating system, one death after the other, and look at what is left.

    NAMES are the actions; all by default. Exit code 1 if after any death something torn is served, the accounting is
    too low, the next process is hindered, or one recount does not correct all.

    \b
    lockcache-stress kill-table put evict
    lockcache-stress kill-table --report deaths.html --junit deaths.xml
    lockcache-stress kill-table --markdown > docs/kill-table.md
    """
    if as_text and shell.as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    rows: list[Row] = []

    def show_text(written: Written) -> None:
        if as_text:
            print(as_markdown(rows), end="")
        else:
            print_tabled(written)

    with shell.finding(
        rows,
        "deaths",
        lambda: _tabulate(rows),
        ["lockcache-stress", "kill-table", *names],
        lambda _: [row.as_json() for row in rows],
        show_text=show_text,
        is_quiet=as_text,
    ) as show:
        rows.extend(make_rows(names or tuple(ACTIONS), lambda name, done: show(name, 0.0, f"{done} deaths")))
    return shell.code


def _tabulate(rows: Sequence[Row]) -> Tabled:
    """Returns the deaths as a verdict: two checks for each action, and a table of all."""
    lines = []
    for action in dict.fromkeys(row.action for row in rows):
        mine = [row for row in rows if row.action == action]
        wrong = sum(not row.ok for row in mine)
        lines += [Check(f"{action}: deaths", f"{len(mine):,}"), Check(f"{action}: wrong", f"{wrong:,}", "0", not wrong)]
    return Tabled(
        name="kill-table",
        title=f"kill-table: {len(rows)} deaths",
        lines=lines,
        numbers={"deaths": [row.as_json() for row in rows]},
        counts=[f"{len(rows):,}"],
        grids=[_grid(rows)],
        findings=[
            {"error": f"{row.action}, death {row.number}, in front of {row.step}: {'; '.join(row.left.wrong)}"}
            for row in rows
            if not row.ok
        ],
    )


def _grid(rows: Sequence[Row]) -> Grid:
    columns = ["action", "#", "died in front of", "entry", "others", "staged", "leases", "page"]
    has_wrong = any(not row.ok for row in rows)
    lines = [GridRow([*_cells(row), *(["; ".join(row.left.wrong)] if has_wrong else [])], row.ok) for row in rows]
    columns += ["wrong"] if has_wrong else []
    return Grid("what survives a SIGKILL in front of each step", columns, lines)


def _cells(row: Row) -> list[str]:
    left = row.left
    page = f"{left.surplus_bytes:+,}" if left.surplus_bytes else "exact"
    counts = [f"{left.others}/{len(OTHERS)}", str(left.staged), str(left.leases), page]
    return [row.action, str(row.number), row.step, left.entry, *counts]

"""``lockcache-stress kill-table``, with click."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from lockcache_stress.kill_table.actions import ACTIONS, OTHERS
from lockcache_stress.kill_table.table import Row, as_markdown, make_rows
from lockcache_stress.options import JSON
from lockcache_stress.report import print_json, showing

__all__ = ["kill_table_command"]


@click.command("kill-table", short_help="SIGKILL at every step of put, evict, recount, lease, sweep: what survives?")
@click.argument("names", nargs=-1, type=click.Choice(list(ACTIONS)))
@click.option("--markdown", "as_text", is_flag=True, help="Print the page that is in the documents.")
@JSON
def kill_table_command(names: tuple[str, ...], as_text: bool, as_json: bool) -> int:
    """Die in front of every call to the operating system, one death after the other, and look at what is left.

    NAMES are the actions; all by default. Exit code 1 if after any death something torn is served, the accounting is
    too low, the next process is hindered, or one recount does not mend all.

    \b
    lockcache-stress kill-table put evict
    lockcache-stress kill-table --markdown > docs/kill-table.md
    """
    if as_text and as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    chosen = names or tuple(ACTIONS)
    with showing() as show:
        rows = list(make_rows(chosen, lambda name, done: show(name, 0.0, f"{done} deaths")))
    if as_json:
        print_json([row.as_json() for row in rows])
    elif as_text:
        print(as_markdown(rows), end="")
    else:
        _print_rows(rows)
    return 0 if all(row.ok for row in rows) else 1


def _print_rows(rows: Sequence[Row]) -> None:
    table = Table(title="what survives a SIGKILL in front of each step", title_justify="left")
    for column in ("action", "#", "died in front of", "entry", "others", "staged", "page", ""):
        table.add_column(column, justify="right" if column in ("#", "page") else "left")
    for row in rows:
        left = row.left
        verdict = "[green]ok[/]" if row.ok else f"[bold red]NO[/]: {'; '.join(left.wrong)}"
        others, page = f"{left.others}/{len(OTHERS)}", f"{left.surplus_bytes:+,}" if left.surplus_bytes else "exact"
        table.add_row(row.action, str(row.number), row.step, left.entry, others, str(left.staged), page, verdict)
    Console().print(table)

# SPDX-License-Identifier: Apache-2.0
"""Prints outcomes: progress while they come, a table, or JSON. Decides nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from lockcache_stress.bench import Line
from lockcache_stress.report.content import Written, words_of
from lockcache_stress.run import Check, Grid, Reportable, Show, Tabled

_MOST_FINDINGS = 5
# The columns of output to a pipe, which has no width of its own. The lines of the benchmark fit into 80.
_PIPE_COLUMNS = 160
_BENCH_COLUMNS = 80
# Four cells of this width leave a third of 80 columns for names; a longer cell is wrapped between words.
_WIDEST_CELL = 12


@contextmanager
def showing(*, is_transient: bool = False) -> Iterator[Show]:
    """Yields a function that shows progress: a bar on stderr, a line per stage; no bar if stderr is not a terminal.

    ``is_transient``: the bar is removed at the end.
    """
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    columns = (
        TextColumn("{task.description:>14}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=is_transient) as progress:

        def show(stage: str, share: float, words: str) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=1.0, words=words)
            progress.update(tasks[stage], completed=min(share, 1.0), words=words)

        yield show


def _console(pipe_columns: int = _PIPE_COLUMNS) -> Console:
    """Returns the console for verdicts: as wide as the terminal, and wide enough where there is none."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, pipe_columns)
    return console


def print_outcome(outcome: Reportable, replay: Sequence[str]) -> None:
    """Print the verdict of one run as a table; findings and how to replay where something is wrong."""
    console = _console()
    console.print(_table(outcome.title, outcome.checks()))
    if outcome.ok:
        console.print("[bold green]ok[/]: everything is as it must be")
        return
    _print_failed(console, outcome, replay)


def _print_failed(console: Console, outcome: Reportable, replay: Sequence[str]) -> None:
    console.print("[bold red]FAILED[/]: not everything is as it must be")
    for death in outcome.deaths:
        console.print(f"  {death}", markup=False)
    for finding in outcome.findings[:_MOST_FINDINGS]:
        console.print(f"  {words_of(finding)}", markup=False, soft_wrap=True)
    console.print(f"replay: {shlex.join(replay)}", markup=False, soft_wrap=True)


def print_summary(outcomes: Sequence[Reportable], skipped: Sequence[tuple[str, str]]) -> None:
    """Print one line per scenario."""
    table = Table(title="all scenarios", title_justify="left")
    for column in ("scenario", "operations", "hits", "torn", "stale", "foreign", "deaths", "peak / cap", "verdict"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for outcome in outcomes:
        table.add_row(outcome.name, *outcome.summary(), _verdict(outcome.ok))
    for name, reason in skipped:
        table.add_row(name, *[""] * 7, f"[yellow]skipped[/]: {reason}")
    _console().print(table)


def print_tabled(written: Written) -> None:
    """Print the tables of a command other than a scenario, what was skipped, and the findings of failed runs."""
    tabled = [ran.outcome for ran in written.runs if isinstance(ran.outcome, Tabled)]
    for grid in [*written.grids, *(grid for each in tabled for grid in each.grids)]:
        _print_grid(grid)
    console = _console()
    for ran in written.runs:
        if ran.outcome.ok:
            continue
        if isinstance(ran.outcome, Tabled):
            _print_failed(console, ran.outcome, ran.replay)
        else:
            console.print(f"{ran.name}:", markup=False)
            print_outcome(ran.outcome, ran.replay)
    for name, reason in written.skipped:
        console.print(f"{name}: skipped: {reason}", markup=False, soft_wrap=True)


def _print_grid(grid: Grid) -> None:
    """Print one table."""
    table = Table(title=grid.title, title_justify="left")
    for column in grid.columns:
        table.add_column(column, overflow="fold")  # because names of files are too long for a narrow terminal
    if grid.judges_rows:
        table.add_column("")
    for row in grid.rows:
        verdict = [_verdict(row.ok)] if grid.judges_rows else []
        table.add_row(*map(escape, row.cells), *verdict, style=None if row.ok else "bold red")
    _console().print(table)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of figures; the first column has names."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_replay(replay: Sequence[str]) -> None:
    """Print the command that makes the same choices again."""
    Console().print(f"replay: {shlex.join(replay)}", markup=False, soft_wrap=True, highlight=False)


def print_bench(machine: Mapping[str, str], lines: Sequence[Line]) -> None:
    """Print the measurements, and the machine. Readable at 80 columns."""
    title = "lockcache next to cuda.core's FileStreamProgramCache"
    table = _bench_table(title, "lockcache", "cuda.core", "ratio", "must be")
    table.add_column("", no_wrap=True)
    for line in lines:
        table.add_row(_what(line), line.ours, line.theirs, line.ratio, line.bar, _bench_verdict(line))
    console = _console(_BENCH_COLUMNS)
    console.print(table)
    if any(line.others for line in lines):
        console.print()
        console.print(_side_by_side([line for line in lines if line.others or line.floor]))
    console.print("; ".join(f"{name}: {value}" for name, value in machine.items()), markup=False, highlight=False)


def _side_by_side(lines: Sequence[Line]) -> Table:
    """Returns the table of all caches, also of those that no bar compares with."""
    others = list(dict.fromkeys(name for line in lines for name in line.others))
    table = _bench_table("side by side", "lockcache", "cuda.core", *others, "plain files")
    for line in lines:
        others_cells = [line.others.get(name, "") for name in others]
        table.add_row(escape(line.name), line.ours, line.theirs, *others_cells, line.floor)
    return table


def _bench_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    table.add_column("what")
    for column in columns:
        table.add_column(column, justify="right", max_width=_WIDEST_CELL)
    return table


def _what(line: Line) -> str:
    """Returns the line's name, with notes below it: a column of their own would make the table too wide."""
    notes = [f"plain files: {line.floor}"] if line.floor else []
    notes += [f"skipped: {line.skipped}"] if line.skipped else []
    return "\n".join([escape(line.name), *(f"  [dim]{escape(note)}[/]" for note in notes)])


def _bench_verdict(line: Line) -> str:
    if line.skipped:
        return "[yellow]--[/]"
    verdict = _verdict(line.ok) if line.bar else ""
    return verdict if line.load is None else f"{verdict}\nload {line.load:.1f}"


def print_written(paths: Sequence[str]) -> None:
    """Print the paths of the files."""
    for path in paths:
        Console().print(f"written: {path}", markup=False, soft_wrap=True, highlight=False)


def print_json(value: object) -> None:
    """Print the output of ``--json``."""
    print(json.dumps(value, indent=2))


def _table(title: str, checks: Sequence[Check]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("is", justify="right")
    table.add_column("must be", justify="right")
    table.add_column("")
    for check in checks:
        table.add_row(check.name, check.value, check.must, _verdict(check.ok) if check.must else "")
    return table


def _verdict(ok: bool) -> str:
    return "[green]ok[/]" if ok else "[bold red]NO[/]"

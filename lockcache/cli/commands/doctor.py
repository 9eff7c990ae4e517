"""``lockcache doctor``: what a file system really does, and whether a cache on it is in order."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.output import plain, print_json
from lockcache.cli.signals import end_in_order
from lockcache.doctor.examine import TIMEOUT_SECONDS, examine
from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNUSABLE, Report
from lockcache.doctor.path_source import origin

__all__ = ["command"]

_STYLES: Final = {GOOD: "green", NOTE: "cyan", DEGRADED: "yellow", UNUSABLE: "bold red"}
_SUMMARIES: Final = {
    GOOD: "good: nothing is lost here",
    DEGRADED: "degraded: a cache works here, with the losses named above",
    UNUSABLE: "unusable: fix what is named above first",
}


@click.command("doctor")
@options.directory
@options.as_json
@click.option(
    "--timeout", callback=options.duration, metavar="TIME", help="Give a check up after so long.  [default: 15s]"
)
@click.pass_context
def command(context: click.Context, directory: str | None, as_json: bool, timeout: float | None) -> None:
    """Examine a directory and the file system that it is on, by trying, with two processes.

    Locks, renames over an open file, exclusive creation, new names, attributes and their size, times and clock, uses by
    a group member (as root), syncing, room against the cap; owner and modes, format, policy, daemon, accounting, what
    killed writers left. Says what is lost and what to change. A directory that is not there, is empty or is not a cache
    is examined too, and does not become one: all is tried in a private directory, which is removed. Never hangs, not
    even on a dead mount.

    \b
    Exit codes: 0 nothing is lost; 1 a cache works, with losses; 2 it cannot be used, or a mistake in what was asked

    \b
    Examples:
      lockcache doctor
      lockcache doctor /scratch/kernels
      lockcache doctor --json /scratch | jq -r '.checks[] | select(.verdict == "degraded") | .advice'
    """
    root = resolve_path(directory)
    end_in_order()
    with _watched() as watch:
        examined = examine(root, timeout or TIMEOUT_SECONDS, watch)
    report = Report(root, [origin(directory, root), *examined.findings])
    if as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    context.exit(report.exit_code)


@contextlib.contextmanager
def _watched() -> Iterator[Callable[[str, int, int], None]]:
    """Shows on a terminal which check goes on."""
    if not sys.stderr.isatty():
        yield lambda check, done, of: None
        return
    from rich.console import Console

    with Console(stderr=True).status("examining") as status:
        yield lambda check, done, of: status.update(f"{check} ({done + 1} of {of})")


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("check", "verdict", "found"):
        table.add_column(title, overflow="fold", no_wrap=title != "found")
    for finding in report.findings:
        style = _STYLES.get(finding.verdict, "dim")
        table.add_row(finding.check, Text(finding.verdict, style), Text(plain(finding.found)))
        for text in (finding.means, finding.advice and f"-> {finding.advice}"):
            if text:
                table.add_row("", "", Text(f"   {plain(text)}", "dim" if finding.verdict in (GOOD, NOTE) else style))
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(table)
    console.print(Text(_SUMMARIES[report.verdict], _STYLES[report.verdict]))

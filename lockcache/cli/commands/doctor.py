"""``lockcache doctor``: what a file system really does, and whether a cache on it is in order."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.output import plain, print_json
from lockcache.cli.signals import end_in_order
from lockcache.doctor.examine import TIMEOUT_SECONDS, examine
from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNTESTED, UNUSABLE, Report
from lockcache.doctor.pair import TIMEOUT_SECONDS as PAIR_TIMEOUT_SECONDS, WAITING, Certificate, certify, prints
from lockcache.doctor.path_source import origin
from lockcache.doctor.server import examine_remote

_STYLES: Final = {GOOD: "green", NOTE: "cyan", DEGRADED: "yellow", UNUSABLE: "bold red", UNTESTED: "yellow"}
_SUMMARIES: Final = {
    GOOD: "good: nothing is lost here",
    DEGRADED: "degraded: a cache works here, with the losses named above",
    UNUSABLE: "unusable: fix what is named above first",
    UNTESTED: "not certified: see what is not tested above",
}


@click.command("doctor")
@options.directory
@options.as_json
@click.option("--pair", is_flag=True, help="Try it together with another host, on which the same command runs.")
@click.option("--remote", metavar="URL", help="Try a server that hosts share, instead of a directory.")
@click.option(
    "--timeout",
    callback=options.duration,
    metavar="TIME",
    help="Give a check, or the wait for the other host, up after so long.  [default: 15s; 60s with --pair]",
)
@click.pass_context
def command(
    context: click.Context, directory: str | None, as_json: bool, pair: bool, remote: str | None, timeout: float | None
) -> None:
    """Examine a directory and the file system that it is on, by trying, with two processes.

    Locks, renames over an open file, exclusive creation, new names, attributes and their size, times and clock, uses by
    a group member (as root), syncing, room against the cap; owner and modes, format, policy, daemon, accounting, what
    killed writers left. Says what is lost and what to change. A directory that is not there, is empty or is not a cache
    is examined too, and does not become one: all is tried in a private directory, which is removed. Never hangs, not
    even on a dead mount.

    With --pair, run on two hosts at once, the two find each other through the directory alone and try on each other
    what one host cannot know: whether locks and exclusive creation exclude the other host and a killed holder's lock
    is free, how soon new, replaced and removed files are seen, whether a rename is atomic for its readers, whether
    attributes and a page that stays open read the same on both, how far the clocks are apart, whether a FIFO wakes.
    Under a launcher rank 0 prints. What a killed run left, the next one removes.

    With --remote, a server of entries is tried (redis://, s3://, http://...): how soon it answers, whether it stores,
    and whether it keeps the leases by which one host compiles for all.

    Exit codes: 0 nothing is lost; 1 a cache works, with losses; 2 it cannot be used, or a mistake in what was asked;
    with --pair also 2 where nothing is certified: nobody came, the other ended, both run on one host.

    \b
    Examples:
      lockcache doctor
      lockcache doctor /scratch/kernels
      lockcache doctor --json /scratch | jq -r '.checks[].advice'
      lockcache doctor --remote redis://cache.example
      mpiexec -n 2 -ppn 1 lockcache doctor --pair /scratch/kernels
      srun -N 2 --ntasks-per-node 1 lockcache doctor --pair --json /scratch/k
    """
    if remote is not None and (pair or directory is not None or timeout is not None):
        raise click.UsageError("--remote: a server is tried by itself, without a directory, --pair or --timeout")
    root = resolve_path(directory)
    end_in_order()
    report: Report
    if remote is not None:
        report = examine_remote(remote)
    else:
        report = _certify(root, directory, timeout) if pair else _examine(root, directory, timeout)
    if pair and not prints(os.environ):
        click.echo(f"lockcache: {socket.gethostname()}: {_SUMMARIES[report.verdict]} (rank 0 prints)", err=True)
    elif as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    context.exit(report.exit_code)


def _examine(root: str, directory: str | None, timeout: float | None) -> Report:
    with _watched() as watch:
        examined = examine(root, timeout or TIMEOUT_SECONDS, watch)
    return Report(root, [origin(directory, root), *examined.findings])


def _certify(root: str, directory: str | None, timeout: float | None) -> Certificate:
    with _watched() as watch:
        certificate = certify(root, timeout or PAIR_TIMEOUT_SECONDS, _saying_that_it_waits(watch))
    return replace(certificate, findings=[origin(directory, root), *certificate.findings])


def _saying_that_it_waits(watch: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
    """Returns ``watch``, which also says once, wherever stderr goes, that somebody has to run the other half."""
    said: list[str] = []

    def say(check: str, done: int, of: int) -> None:
        if check == WAITING and not said:
            said.append(check)
            click.echo(f"lockcache: {socket.gethostname()}: {WAITING}", err=True)
        watch(check, done, of)

    return say


@contextlib.contextmanager
def _watched() -> Iterator[Callable[[str, int, int], None]]:
    """Shows on a terminal which check goes on."""
    if not sys.stderr.isatty():
        yield lambda check, done, of: None
        return
    from rich.console import Console

    with Console(stderr=True).status("examining") as status:
        yield lambda check, done, of: status.update(check if check == WAITING else f"{check} ({done + 1} of {of})")


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

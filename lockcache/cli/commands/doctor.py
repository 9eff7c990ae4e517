# SPDX-License-Identifier: Apache-2.0
"""``lockcache doctor``: what a file system really does, and whether a cache on it is in order."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.output import paint, plain, print_json, table_width
from lockcache.cli.progress import status_line
from lockcache.cli.signals import end_in_order
from lockcache.cli.tables import GAP, align
from lockcache.doctor.examine import TIMEOUT_SECONDS, examine
from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNTESTED, UNUSABLE, Report
from lockcache.doctor.pair import TIMEOUT_SECONDS as PAIR_TIMEOUT_SECONDS, WAITING, Certificate, certify, prints
from lockcache.doctor.path_source import compile_server, origin
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
@click.option("--pair", is_flag=True, help="Test together with another host that runs the same command.")
@click.option("--remote", metavar="URL", help="Test a server that hosts share, not a directory.")
@click.option(
    "--timeout",
    callback=options.duration,
    metavar="TIME",
    help="Time limit of each check, or of waiting for the other host. [default: 15s; 60s with --pair]",
)
@click.pass_context
def command(
    context: click.Context, directory: str | None, as_json: bool, pair: bool, remote: str | None, timeout: float | None
) -> None:
    """Test a directory and its file system with two real processes.

    Tests locks, renames over an open file, exclusive creation, new names, attributes and their size, times and clock,
    uses by a member of the group (as root), syncing, and free space compared with the cap. Checks owner and modes,
    format, policy, daemon, accounting, and files of killed writers. For each finding it says what you lose and what
    to change.

    DIR may be missing, empty, or not a cache, and does not become one: the tests use a private directory, which is
    removed. The doctor never hangs, not even on a dead mount.

    With --pair, run the same command on two hosts at the same time. They find each other through the directory and
    test what one host cannot know: whether locks and exclusive creation exclude the other host, whether the lock of a
    killed process becomes free, how soon new, replaced and removed files are seen, whether a rename is atomic for
    readers, whether attributes and an open page are the same on both, how far the clocks differ, and whether a FIFO
    wakes the other host. Under a launcher, rank 0 prints. Files of a killed run are removed by the next one.

    With --remote, test a server (redis://, s3://, http://...): how soon it answers, whether it stores entries, and
    whether it keeps the leases by which one host compiles for all.

    Exit codes: 0 nothing is lost; 1 a cache works, with losses; 2 a cache does not work here, or the command line is
    wrong; with --pair also if nothing is certified: no other host came, it ended early, or both run on one host.

    \b
    Examples:
      lockcache doctor
      lockcache doctor /scratch/kernels
      lockcache doctor --json /scratch | jq -r '.checks[].advice'
      lockcache doctor --remote redis://cache.example
      mpiexec -n 2 -ppn 1 lockcache doctor --pair DIR              (MPICH)
      mpiexec -n 2 --map-by ppr:1:node lockcache doctor --pair DIR  (Open MPI)
      srun -N 2 --ntasks-per-node 1 lockcache doctor --pair --json /scratch/k
    """
    if remote is not None and (pair or directory is not None or timeout is not None):
        raise click.UsageError("--remote: a server is tried by itself, without a directory, --pair or --timeout")
    root = "" if remote is not None else resolve_path(directory)
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
    return Report(root, [origin(directory, root), *examined.findings, compile_server()])


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
    """Show on a terminal which check is running."""
    with status_line() as show:
        show("examining")
        yield lambda check, done, of: show(check if check == WAITING else f"{check} ({done + 1} of {of})")


def _print(report: Report) -> None:
    rows, styles = [("check", "verdict", "found")], [("", "")]
    for finding in report.findings:
        style = _STYLES.get(finding.verdict, "dim")
        rows.append((finding.check, finding.verdict, plain(finding.found)))
        styles.append((style, ""))
        for text in (finding.means, finding.advice and f"-> {finding.advice}"):
            if text:
                rows.append(("", "", f"   {plain(text)}"))
                styles.append(("", "dim" if finding.verdict in (GOOD, NOTE) else style))
    for lines, (of_verdict, of_text) in zip(align(rows, width=table_width()), styles, strict=True):
        for check, verdict, text in lines:
            click.echo(GAP.join((check, paint(verdict, of_verdict), paint(text.rstrip(), of_text))).rstrip())
    click.echo(paint(_SUMMARIES[report.verdict], _STYLES[report.verdict]))

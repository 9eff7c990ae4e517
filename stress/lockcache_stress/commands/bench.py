# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress bench``: its options, and its files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Final

import click

from lockcache_stress.bench import CURVES, MEASUREMENTS, ON_REQUEST, BenchOutcome, run_bench, why_no_daemon
from lockcache_stress.commands.shell import Shell, with_shell
from lockcache_stress.gpu import describe_machine
from lockcache_stress.report import Files, Ran, Written, print_bench

_FILE: Final = click.Path(dir_okay=False)


@click.command("bench", short_help="this cache next to others, as ratios and curves")
@click.argument("names", nargs=-1, type=click.Choice(list(MEASUREMENTS)))
@click.option("--directory", type=click.Path(file_okay=False), help="Measure on this file system. [temporary]")
@click.option("--quick", is_flag=True, help="Few repetitions: to see it run, not to believe the numbers.")
@click.option("--with-daemon", is_flag=True, help="Run lockcache-daemon on every directory of lockcache's meanwhile.")
@click.option("--curve", is_flag=True, help="Also against 1,000 to 200,000 entries and 1 to 32 processes; minutes.")
@click.option("--keep", is_flag=True, help="Leave daemon-million's entries under --directory, for the next run.")
@click.option("--no-fail", is_flag=True, help="Exit 0 also if something does not hold.")
@click.option("--json-file", type=_FILE, metavar="FILE.json", help="Leave the JSON there, too.")
@with_shell(
    "bench",
    is_seeded=False,
    files=lambda given: Files(given.pop("report"), given.pop("junit"), numbers=given.pop("json_file")),
)
def bench_command(
    shell: Shell,
    names: tuple[str, ...],
    directory: str | None,
    quick: bool,
    with_daemon: bool,
    curve: bool,
    keep: bool,
    no_fail: bool,
) -> int:
    """Measure this cache and others in one run, print ratios, and say what must hold and whether it does.

    Others are cuda.core's, diskcache and JAX's LRU cache, as far as they are installed, and plain files. NAMES are the
    measurements to run; all but the curves and compile-server by default.

    \b
    Examples:
      lockcache-stress bench
      lockcache-stress bench hit put open --directory /lustre/me
      lockcache-stress bench curve-entries --directory /lustre/me --json-file curve.json
      lockcache-stress bench --curve --report bench.html
    """
    if keep and directory is None:
        raise click.BadOptionUsage("keep", "--keep leaves entries under --directory, which is not given")
    if with_daemon and (reason := why_no_daemon()):
        raise click.UsageError(f"--with-daemon: {reason}")
    words = ["lockcache-stress", "bench", *names, *(["--quick"] if quick else []), *(["--curve"] if curve else [])]
    words += ["--with-daemon"] if with_daemon else []
    words += ["--directory", directory] if directory else []
    found: list[BenchOutcome] = []

    def make() -> Written:
        runs = [Ran(each, words) for each in found]
        return Written("lockcache-stress bench", runs, found[0].machine if found else {})

    def show_text(_: Written) -> None:
        print_bench(found[0].machine, found[0].lines)

    with shell.running(make, lambda _: found[0].as_json(), lambda: f"{len(found)} runs", show_text=show_text) as show:
        kept, chosen = directory if keep else None, _chosen(names, curve)
        lines = run_bench(chosen, directory, quick=quick, show=show, keep=kept, with_daemon=with_daemon)
        found.append(BenchOutcome(lines, describe_machine(directory or tempfile.gettempdir()), quick))
    return 0 if no_fail and not found[0].ok and shell.code == 1 else shell.code


def _chosen(names: Sequence[str], curve: bool) -> list[str]:
    chosen = list(names) or [name for name in MEASUREMENTS if name not in ON_REQUEST]
    return chosen + [name for name in CURVES if curve and name not in chosen]

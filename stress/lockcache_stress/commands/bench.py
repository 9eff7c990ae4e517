"""``lockcache-stress bench``: its options, and what it leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Final

import click

from lockcache_stress.bench import CURVES, MEASUREMENTS, BenchOutcome, describe_machine, run_bench, why_no_daemon
from lockcache_stress.commands.options import JSON, reporting
from lockcache_stress.report import Files, Ran, Written, leave, print_bench, print_json, showing

__all__ = ["bench_command"]

_FILE: Final = click.Path(dir_okay=False)


@click.command("bench", short_help="this cache next to others, as ratios and curves")
@click.argument("names", nargs=-1, type=click.Choice(list(MEASUREMENTS)))
@click.option("--directory", type=click.Path(file_okay=False), help="Measure on this file system. [temporary]")
@click.option("--quick", is_flag=True, help="Few repetitions: to see it run, not to believe the numbers.")
@click.option("--with-daemon", is_flag=True, help="Run lockcache-daemon on every directory of lockcache's meanwhile.")
@click.option("--curve", is_flag=True, help="Also against 1,000 to 200,000 entries and 1 to 32 processes; minutes.")
@click.option("--keep", is_flag=True, help="Leave daemon-million's entries under --directory, for the next run.")
@click.option("--no-fail", is_flag=True, help="Exit 0 also if something does not hold.")
@JSON
@click.option("--json-file", type=_FILE, metavar="FILE.json", help="Leave the JSON there, too.")
@click.option("--png", type=_FILE, metavar="FILE.png", help="Leave a picture of times and curves.")
@reporting
def bench_command(
    names: tuple[str, ...],
    directory: str | None,
    quick: bool,
    with_daemon: bool,
    curve: bool,
    keep: bool,
    no_fail: bool,
    as_json: bool,
    json_file: str | None,
    png: str | None,
    report: str | None,
    junit: str | None,
) -> int:
    """Measure this cache and others in one run, print ratios, and say what must hold and whether it does.

    Others are cuda.core's, diskcache and JAX's LRU cache, as far as they are installed, and plain files. NAMES are the
    measurements to run; all but the curves by default.

    \b
    Examples:
      lockcache-stress bench
      lockcache-stress bench hit put open --directory /lustre/me
      lockcache-stress bench curve-entries --directory /lustre/me --png curve.png
      lockcache-stress bench --curve --report bench.html
    """
    if keep and directory is None:
        raise click.BadOptionUsage("keep", "--keep leaves entries under --directory, which is not given")
    if with_daemon and (reason := why_no_daemon()):
        raise click.UsageError(f"--with-daemon: {reason}")
    files = Files(report, junit, numbers=json_file, png=png)
    with showing() as show:
        lines = run_bench(
            _chosen(names, curve),
            directory,
            quick=quick,
            show=show,
            keep=directory if keep else None,
            with_daemon=with_daemon,
        )
    outcome = BenchOutcome(lines, describe_machine(directory or tempfile.gettempdir()), quick)
    if as_json:
        print_json(outcome.as_json())
    else:
        print_bench(outcome.machine, lines)
    words = ["lockcache-stress", "bench", *names, *(["--quick"] if quick else []), *(["--curve"] if curve else [])]
    words += ["--with-daemon"] if with_daemon else []
    words += ["--directory", directory] if directory else []
    code = leave(files, Written("lockcache-stress bench", [Ran(outcome, words)], outcome.machine), as_json=as_json)
    return 0 if no_fail and not outcome.ok and code == 1 else code


def _chosen(names: Sequence[str], curve: bool) -> list[str]:
    chosen = list(names) or [name for name in MEASUREMENTS if name not in CURVES]
    return chosen + [name for name in CURVES if curve and name not in chosen]

# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress demo``: its options, and its page of at most twenty lines."""

from __future__ import annotations

import click

from lockcache.sizes import format_size
from lockcache_stress.commands.shell import MOST_PROCESSES, SECONDS, Shell, with_shell
from lockcache_stress.experiments.demo import DemoOutcome, DemoPlan, Kept, run_demo
from lockcache_stress.report import Files, print_json, print_outcome, print_table, showing


@click.command("demo", short_help="the same work without a cache and with it, in under a minute and twenty lines")
@click.option("--processes", type=click.IntRange(1, MOST_PROCESSES), default=8, show_default=True)
@click.option("--kernels", type=click.IntRange(2, 1000), default=12, show_default=True)
@click.option("--seconds", type=SECONDS, default=8.0, show_default=True, help="How long the part with a daemon lasts.")
@click.option("--verbose", is_flag=True, help="Also a table of each part, and of what was checked.")
@with_shell("demo", reports=False, files=lambda given: Files())
def demo_command(shell: Shell, processes: int, kernels: int, seconds: float, verbose: bool) -> int:
    """Compile the same kernels in several processes: without a cache, with lockcache, and under a cap with a daemon.

    Each start is one of new processes, and is measured from the moment when all of them have done their imports. Every
    result is compared with what NVRTC gave without a cache. Exits 1 if one differs, if a kernel was compiled twice, or
    if the directory was ever larger than its cap.
    """
    if not shell.as_json:
        print(f"Demo: {processes} processes want the same {kernels} CUDA kernels at once. About 50 seconds.")
        print("No GPU is used. Files are in a temporary directory, which is removed.\n", flush=True)
    with showing(is_transient=True) as show:
        outcome = run_demo(DemoPlan(processes, kernels, shell.seed, seconds), show)
    if shell.as_json:
        print_json(outcome.as_json())
        return 0 if outcome.ok else 1
    print("\n".join(page(outcome)))
    if verbose:
        _print_tables(outcome)
    if verbose or not outcome.ok:
        print_outcome(outcome, shell.replay())
    return 0 if outcome.ok else 1


def page(outcome: DemoOutcome) -> list[str]:
    """Returns the result in lines of at most 80 columns."""
    rows = [
        _row("", "first start", "next start", "first start", "next start"),
        _row("compilations", *(f"{start.compiles:,}" for start in outcome.starts)),
        _row("wall time", *(_seconds(start.seconds) for start in outcome.starts)),
        _row("processor time", *(_seconds(start.cpu_seconds) for start in outcome.starts)),
    ]
    faster = outcome.starts[-1].seconds / outcome.starts[1].seconds
    verdict = f"All {outcome.results:,} results have the bytes of a compilation without a cache."
    if outcome.wrong:
        verdict = f"WRONG: {outcome.wrong:,} of {outcome.results:,} results differ from a compilation without a cache."
    lines = [
        f"{'':26}{'without a cache':>18}{'with lockcache':>23}",
        *rows,
        "",
        f"The next start with lockcache takes 1/{1 / faster:,.0f} of the time.",
        verdict,
    ]
    for kept in outcome.kept:
        lines += ["", *_describe(kept, outcome.plan)]
    return lines


def _row(name: str, *cells: str) -> str:
    one, two, three, four = cells
    return f"  {name:18}{one:>13}{two:>11}{three:>13}{four:>11}"


def _describe(kept: Kept, plan: DemoPlan) -> list[str]:
    share = f"{kept.peak_bytes / kept.cap_bytes:.0%}"
    return [
        f"With lockcache-daemon and a cap of {format_size(kept.cap_bytes)}, too small for all, {plan.seconds:g} s:",
        f"  {kept.requests:,} requests, {kept.compiles:,} compiled again; on disk at most {share} of the cap",
        f"  {kept.daemon_evictions:,} evicted by the daemon in advance, {kept.program_evictions:,} by programs"
        + (f"; {kept.trouble}" if kept.trouble else ""),
    ]


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def _print_tables(outcome: DemoOutcome) -> None:
    header = ("process", "kernels got", "compiled", "wall", "processor", "evicted")
    parts = [(start.name, start.answers) for start in outcome.starts]
    parts += [("under a cap, with a daemon", kept.answers) for kept in outcome.kept]
    for name, answers in parts:
        rows = [
            [
                str(answer.process),
                f"{len(answer.got):,}",
                f"{answer.compiles:,}",
                _seconds(answer.seconds),
                _seconds(answer.cpu_seconds),
                f"{answer.evictions:,}",
            ]
            for answer in answers
        ]
        print_table(name, header, rows)

# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress simulate``: its options, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from lockcache.cli.options import each
from lockcache.sizes import format_size, parse_share
from lockcache_stress.commands.shell import RealRange, Shell, with_shell
from lockcache_stress.experiments.simulate import (
    ORDERS,
    Program,
    Trace,
    load_programs,
    load_trace,
    make_trace,
    measure_programs,
    replay,
    save_programs,
    save_trace,
    standard_traces,
    upper_bound,
)
from lockcache_stress.report import Files, Written, print_json, print_replay, print_table, showing

_SHARES: Final = ("5%", "10%", "20%")
_FILE: Final = click.Path(dir_okay=False)
_ZIPF: Final = 0.8
_CHANGED: Final = 0.01
_COLUMNS: Final = ("cache", "size", *ORDERS, "at most", "value / cost")


@click.command("simulate", short_help="what orders of eviction save, on five traces, with real compile costs")
@click.option("--kernels", type=click.IntRange(1, 10_000), default=40, show_default=True, help="Sources to compile.")
@click.option("--requests", type=click.IntRange(1, 10_000_000), default=20_000, show_default=True, help="Look-ups.")
@click.option(
    "--zipf",
    type=RealRange(0, 5),
    help=f"One trace: how much a few programs are asked for more than the others; 0: all alike. [{_ZIPF}]",
)
@click.option(
    "--changed",
    type=RealRange(0, 1),
    help="One trace: how often a source changes, per look-up; what was compiled from the older one is not asked for "
    f"again. [{_CHANGED}]",
)
@click.option(
    "--size",
    "shares",
    callback=each(parse_share),
    metavar="SHARE",
    multiple=True,
    default=_SHARES,
    show_default=True,
    help="Cache size, as a share of all programs; more than once.",
)
@click.option("--costs", type=_FILE, help="Costs and sizes of an earlier run, instead of compiling.")
@click.option("--save-costs", type=_FILE, help="Keep costs and sizes for --costs.")
@click.option("--trace", type=_FILE, help="One trace: look-ups of an earlier run, instead of drawing them.")
@click.option("--save-trace", type=_FILE, help="Keep the look-ups of one trace for --trace.")
@click.option("--markdown", "as_text", is_flag=True, help="Print the tables as they are in the documents.")
@click.option("--svg", type=_FILE, metavar="FILE.svg", help="Draw them.")
@with_shell("simulate", reports=False, files=lambda given: Files(svg=given.pop("svg")))
def simulate_command(shell: Shell, shares: tuple[float, ...], as_text: bool, **given: Any) -> int:
    """Replay look-ups against caches of several sizes, and compare the compile time that orders of eviction save.

    Programs are compiled with the real NVRTC, once each; costs are processor time. Five traces: three by Zipf's law;
    one recorded from tests with real frameworks, which has costs of its own; one of a CI that builds for six
    architectures. Or one, as --zipf, --changed or --trace say.

    \b
    Orders:
      lru      the least recently used goes first
      cost     the least compile time / (bytes x time since the last use); what value replaced
      value    what caches do: GDSF; chosen by the function that caches call
      source   value, but first what is of a source that was compiled again since
      s3-fifo  S3-FIFO, which knows no cost
      at most  no cache of that size saves more, even one that knows what comes

    \b
    Examples:
      lockcache-stress simulate
      lockcache-stress simulate --save-costs costs.json --seed 1
      lockcache-stress simulate --costs costs.json --seed 1 --size 10% --zipf 1.1
    """
    if as_text and shell.as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    if given["save_trace"] and not _is_one(given):
        raise click.UsageError("--save-trace keeps one trace: give --zipf, --changed or --trace")
    try:
        found = _simulate(shell.seed, shares, given)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    found["replay"] = _replay_line(shell.seed, shares, given)
    shell.files.write(Written("lockcache-stress simulate", [], {}, [], numbers=found))
    if shell.as_json:
        print_json(found)
    elif as_text:
        _print_markdown(found)
    else:
        _print(found)
    return 0


def _is_one(given: dict[str, Any]) -> bool:
    return any(given[name] is not None for name in ("zipf", "changed", "trace"))


def _simulate(seed: int, shares: Sequence[float], given: dict[str, Any]) -> dict[str, Any]:
    with showing() as show:
        programs = (
            load_programs(given["costs"])
            if given["costs"]
            else measure_programs(given["kernels"], seed, lambda done, all_: show("compiling", done / all_, ""))
        )
        if given["save_costs"]:
            save_programs(given["save_costs"], programs)
        traces = [_one(programs, seed, given)] if _is_one(given) else standard_traces(programs, given["requests"], seed)
        if given["save_trace"]:
            save_trace(given["save_trace"], traces[0].requests)
        results, steps = [], len(traces) * len(shares)
        for number, trace in enumerate(traces):
            caches = []
            for done, share in enumerate(shares):
                show("replaying", (number * len(shares) + done) / steps, f"{trace.name}, {share:.0%}")
                caches.append(_measure(trace, share))
            results.append(_described(trace, caches))
    return {"traces": results}


def _one(programs: list[Program], seed: int, given: dict[str, Any]) -> Trace:
    if given["trace"]:
        return Trace("of a file", programs, load_trace(given["trace"], len(programs)))
    exponent = _ZIPF if given["zipf"] is None else given["zipf"]
    changed = _CHANGED if given["changed"] is None else given["changed"]
    requests = make_trace(len(programs), given["requests"], seed, exponent=exponent, changed=changed)
    return Trace(f"zipf {exponent:g}, changed {changed:g}", programs, requests)


def _described(trace: Trace, caches: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": trace.name,
        "programs": len(trace.programs),
        "bytes": sum(program.size_bytes for program in trace.programs),
        "requests": len(trace.requests),
        "compile_seconds": sum(trace.programs[request.program].cost_ns for request in trace.requests) / 1e9,
        "caches": caches,  # by the share of all programs for which the cache has room
    }


def _measure(trace: Trace, share: float) -> dict[str, Any]:
    limit_bytes = int(share * sum(program.size_bytes for program in trace.programs))
    found: dict[str, Any] = {"share": share, "size_bytes": limit_bytes}
    for order in ORDERS:
        saved = replay(trace.requests, trace.programs, limit_bytes, order)
        found[order] = {"hits": saved.hits, "saved_seconds": saved.saved_ns / 1e9, "evictions": saved.evictions}
    return {**found, "at_most_saved_seconds": upper_bound(trace.requests, trace.programs, limit_bytes) / 1e9}


def _rows(trace: dict[str, Any]) -> list[list[str]]:
    rows = []
    for cache in trace["caches"]:
        seconds = [*(cache[order]["saved_seconds"] for order in ORDERS), cache["at_most_saved_seconds"]]
        ratio = cache["value"]["saved_seconds"] / max(1e-9, cache["cost"]["saved_seconds"])
        saved = [f"{each:,.0f} s" if each >= 100 else f"{each:,.1f} s" for each in seconds]
        rows.append([f"{cache['share'] * 100:g} %", format_size(cache["size_bytes"]), *saved, f"{ratio:.2f}"])
    return rows


def _title(trace: dict[str, Any]) -> str:
    what = f"{trace['requests']:,} look-ups of {trace['programs']} programs ({format_size(trace['bytes'])})"
    return f"{trace['name']}: {what}, without a cache {trace['compile_seconds']:,.0f} s of compiling; saved:"


def _print(found: dict[str, Any]) -> None:
    for trace in found["traces"]:
        print_table(_title(trace), _COLUMNS, _rows(trace))
    print_replay(found["replay"])


def _print_markdown(found: dict[str, Any]) -> None:
    click.echo(f"| trace | {' | '.join(_COLUMNS)} |\n|{'---|' * (1 + len(_COLUMNS))}")
    for trace in found["traces"]:
        for row in _rows(trace):
            click.echo(f"| {' | '.join([trace['name'], *row])} |")
    click.echo(f"\n`{' '.join(found['replay'])}`")


def _replay_line(seed: int, shares: Sequence[float], given: dict[str, Any]) -> list[str]:
    words = ["lockcache-stress", "simulate", "--seed", str(seed)]
    moot = {"kernels"} if given["costs"] else set()
    moot |= {"requests", "zipf", "changed"} if given["trace"] else set()
    for name, value in given.items():
        if value is not None and name not in moot and not name.startswith("save"):
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    for share in shares:
        words += ["--size", f"{share * 100:g}%"]
    return words

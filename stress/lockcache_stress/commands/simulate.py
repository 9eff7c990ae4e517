"""``lockcache-stress simulate``: its options, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from lockcache.cli.options import each
from lockcache.filestream import PRIORITIES
from lockcache.sizes import format_size, parse_share
from lockcache_stress.commands.shell import RealRange, Shell, with_shell
from lockcache_stress.experiments import (
    Program,
    Request,
    load_programs,
    load_trace,
    make_trace,
    measure_programs,
    replay,
    save_programs,
    save_trace,
    upper_bound,
)
from lockcache_stress.report import Files, print_json, print_replay, print_table, showing

_SHARES: Final = ("5%", "10%", "20%", "40%", "80%")
_FILE: Final = click.Path(dir_okay=False)


@click.command("simulate", short_help="what eviction by compile cost saves, against least recently used")
@click.option("--kernels", type=click.IntRange(1, 10_000), default=40, show_default=True, help="Sources to compile.")
@click.option("--requests", type=click.IntRange(1, 10_000_000), default=20_000, show_default=True, help="Look-ups.")
@click.option(
    "--zipf",
    type=RealRange(0, 5),
    default=0.8,
    show_default=True,
    help="How much a few programs are asked for more than the others; 0: all alike.",
)
@click.option(
    "--changed",
    type=RealRange(0, 1),
    default=0.01,
    show_default=True,
    help="How often a source changes, per look-up: what was compiled from the older one is not asked for again.",
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
@click.option("--trace", type=_FILE, help="Look-ups of an earlier run, instead of drawing them.")
@click.option("--save-trace", type=_FILE, help="Keep the look-ups for --trace.")
@with_shell("simulate", reports=False, files=lambda given: Files())
def simulate_command(shell: Shell, shares: tuple[float, ...], **given: Any) -> int:
    """Replay look-ups against caches of several sizes that evict by last use (lru) and by compile cost (cost).

    Programs are compiled with the real NVRTC, once each; costs are processor time. Look-ups follow Zipf's law, or a
    trace. Victims are chosen by the function that caches call. "at most" is what no cache of that size could exceed,
    even one that knew what comes. The same costs, trace and seed give the same result.

    \b
    Examples:
      lockcache-stress simulate
      lockcache-stress simulate --save-costs costs.json --seed 1
      lockcache-stress simulate --costs costs.json --seed 1 --size 10% --zipf 1.1
    """
    try:
        found = _simulate(shell.seed, shares, given)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    found["replay"] = _replay_line(shell.seed, shares, given)
    if shell.as_json:
        print_json(found)
    else:
        _print(found)
    return 0


def _simulate(seed: int, shares: Sequence[float], given: dict[str, Any]) -> dict[str, Any]:
    with showing() as show:
        programs = (
            load_programs(given["costs"])
            if given["costs"]
            else measure_programs(given["kernels"], seed, lambda done, all_: show("compiling", done / all_, ""))
        )
        if given["save_costs"]:
            save_programs(given["save_costs"], programs)
        trace = (
            load_trace(given["trace"], len(programs))
            if given["trace"]
            else make_trace(len(programs), given["requests"], seed, exponent=given["zipf"], changed=given["changed"])
        )
        if given["save_trace"]:
            save_trace(given["save_trace"], trace)
        results = []
        for number, share in enumerate(shares, 1):
            results.append(_measure(trace, programs, share))
            show("replaying", number / len(shares), f"{share:.0%}")
    return {
        "programs": len(programs),
        "bytes": sum(program.size_bytes for program in programs),
        "requests": len(trace),
        "compile_seconds": sum(programs[request.program].cost_ns for request in trace) / 1e9,
        "caches": results,  # by the share of all programs for which the cache has room
    }


def _measure(trace: list[Request], programs: list[Program], share: float) -> dict[str, Any]:
    limit_bytes = int(share * sum(program.size_bytes for program in programs))
    found: dict[str, Any] = {"share": share, "size_bytes": limit_bytes}
    for priority in PRIORITIES:
        saved = replay(trace, programs, limit_bytes, priority)
        found[priority] = {"hits": saved.hits, "saved_seconds": saved.saved_ns / 1e9, "evictions": saved.evictions}
    return {**found, "at_most_saved_seconds": upper_bound(trace, programs, limit_bytes) / 1e9}


def _print(found: dict[str, Any]) -> None:
    title = f"{found['requests']:,} look-ups of {found['programs']} programs ({format_size(found['bytes'])}): "
    title += f"without a cache {found['compile_seconds']:,.0f} s of compiling"
    rows = []
    for each_size in found["caches"]:
        hits = [f"{each_size[each]['hits'] / found['requests']:.1%}" for each in PRIORITIES]
        seconds = [*(each_size[each]["saved_seconds"] for each in PRIORITIES), each_size["at_most_saved_seconds"]]
        saved = [f"{each:,.0f} s" for each in seconds]
        rows.append([f"{each_size['share'] * 100:g} %", format_size(each_size["size_bytes"]), *hits, *saved])
    print_table(title, ("cache", "size", "hits, lru", "hits, cost", "saved, lru", "saved, cost", "at most"), rows)
    print_replay(found["replay"])


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

# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress fleet``: its options, and its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from lockcache.cli.options import parsed_by, size
from lockcache.sizes import format_size, parse_count, parse_duration
from lockcache_stress.commands.shell import RealRange, Shell, with_shell
from lockcache_stress.experiments import COUNTED, WAYS, Calls, Cost, Fleet, compare, is_near, load_counts, run_start
from lockcache_stress.report import Files, Written, print_json, print_table, showing

_RANKS: Final = (64, 256, 1024, 4096)
_STORED: Final = (0.0, 100.0)
_COLUMNS: Final = ("way", "ranks", "compiles", "requests", "read", "seconds", "GPU-hours")
_FILE: Final = click.Path(dir_okay=False)
_Command = TypeVar("_Command", bound=Callable[..., Any])
_Found = tuple[Fleet, list[Cost]]
_HOUR_SECONDS: Final = 3600


def _duration(name: str, default: str, help_: str) -> Callable[[_Command], _Command]:
    return click.option(
        name, callback=parsed_by(parse_duration), metavar="DURATION", default=default, show_default=True, help=help_
    )


@click.command("fleet", short_help="a model: what a start of 64 to 4,096 ranks costs a file server, in four ways")
@click.option(
    "--ranks", type=click.IntRange(1, 65536), multiple=True, default=_RANKS, show_default=True, help="In all."
)
@click.option("--per-node", "ranks_per_node", type=click.IntRange(1, 1024), default=8, show_default=True, help="Ranks.")
@click.option("--kernels", type=click.IntRange(1, 10_000), default=300, show_default=True, help="Each rank wants all.")
@click.option(
    "--kernel-size", "kernel_bytes", callback=size, metavar="SIZE", default="100k", show_default=True, help="Of one."
)
@_duration("--compile", "300ms", "What compiling one takes, on an average.")
@click.option(
    "--stored",
    type=RealRange(0, 100),
    metavar="PERCENT",
    multiple=True,
    default=_STORED,
    show_default=True,
    help="Of the kernels, left by an earlier job.",
)
@_duration("--launch", "1s", "Within which the ranks begin.")
@click.option("--shuffled", "is_shuffled", is_flag=True, help="Each rank asks in an order of its own.")
@click.option(
    "--rate",
    "requests_per_second",
    callback=parsed_by(parse_count),
    default="20k",
    show_default=True,
    help="Requests that the server answers in a second.",
)
@_duration("--round-trip", "300us", "Between a node and an idle server.")
@click.option(
    "--bandwidth",
    "bytes_per_second",
    callback=size,
    metavar="SIZE",
    default="2G",
    show_default=True,
    help="That the server sends in a second.",
)
@click.option(
    "--counts", type=_FILE, help="What hosts --nfs --scenarios calls,fleet,seed --json-file left. [Debian's, NFS 4.2]"
)
@click.option("--check", is_flag=True, help="Compare the model with the starts that were counted, and end.")
@click.option("--markdown", "as_text", is_flag=True, help="Print the table as it is in the documents.")
@click.option("--svg", type=_FILE, metavar="FILE.svg", help="Draw it.")
@with_shell("fleet", reports=False, files=lambda given: Files(svg=given.pop("svg")))
def fleet_command(
    shell: Shell,
    ranks: tuple[int, ...],
    stored: tuple[float, ...],
    counts: str | None,
    check: bool,
    as_text: bool,
    **given: Any,
) -> int:
    """Simulate how a fleet starts: every rank wants the same kernels, and one server has the shared file system.

    The requests of each operation were counted by a real NFS client; state your server's rates. Four ways: each rank
    compiles; one shared directory; that with a directory on each node in front; a bundle copied once to each node.
    Seconds are until the last rank has its kernels; GPU-hours are those of all
    ranks until then, one GPU each. The same seed gives the same.

    \b
    Examples:
      lockcache-stress fleet
      lockcache-stress fleet --ranks 512 --per-node 4 --rate 100k --stored 95
      lockcache-stress fleet --check
    """
    if as_text and shell.as_json:
        raise click.UsageError("--markdown and --json exclude each other")
    try:
        trials = load_counts(counts or COUNTED)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    if check:
        return _check(shell, trials)
    calls = Calls.counted(trials)
    fleet = _fleet(calls, shell.seed, given)
    fleets = [replace(fleet, ranks=number, stored=share / 100) for share in stored for number in ranks]
    found = _run(fleets)
    starts = [{**vars(each), "calls": vars(calls), "ways": [cost.as_json() for cost in costs]} for each, costs in found]
    shell.files.write(Written("lockcache-stress fleet", [], {}, [], numbers={"starts": starts}))
    if shell.as_json:
        print_json({"starts": starts})
    else:
        (_print_markdown if as_text else _print)(found)
    return 0


def _fleet(calls: Calls, seed: int, given: dict[str, Any]) -> Fleet:
    seconds = {f"{name}_seconds": given.pop(name) for name in ("compile", "launch", "round_trip")}
    return Fleet(calls, seed=seed, **seconds, **given)


def _run(fleets: Sequence[Fleet]) -> list[_Found]:
    found = []
    with showing() as show:
        for number, fleet in enumerate(fleets):
            show("simulating", number / len(fleets), f"{fleet.ranks:,} ranks")
            found.append((fleet, [run_start(fleet, way) for way in WAYS]))
    return found


def _cells(fleet: Fleet, cost: Cost) -> list[str]:
    requests = f"{sum(cost.requests.values()):,.0f}"
    hours = f"{cost.rank_seconds / _HOUR_SECONDS:,.2f}"
    sent = format_size(cost.sent_bytes)
    return [cost.way, f"{fleet.ranks:,}", f"{cost.computes:,}", requests, sent, f"{cost.seconds:,.1f}", hours]


def _tables(found: Sequence[_Found]) -> dict[str, list[list[str]]]:
    """Returns the rows of the table of each share of stored kernels, by its title."""
    tables: dict[str, list[list[str]]] = {}
    for fleet, costs in found:
        title = f"{fleet.stored * 100:g} % of {fleet.kernels:,} kernels are stored"
        tables.setdefault(title, []).extend(_cells(fleet, cost) for cost in costs)
    return tables


def _print(found: Sequence[_Found]) -> None:
    for title, rows in _tables(found).items():
        print_table(title, _COLUMNS, rows)


def _print_markdown(found: Sequence[_Found]) -> None:
    for title, rows in _tables(found).items():
        lines = [_COLUMNS, ["---", *["---:"] * (len(_COLUMNS) - 1)], *rows]
        print(f"{title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")


def _check(shell: Shell, trials: dict[str, Any]) -> int:
    compared = compare(trials)
    rows: list[dict[str, Any]] = [
        {"start": name, "counted": counted, "model": model, "ratio": round(model / counted, 2)}
        for name, (counted, model) in compared.items()
    ]
    if shell.as_json:
        print_json(rows)
    else:
        for row in rows:
            line = f"{row['start']:22} {row['counted']:>7,} requests counted, {row['model']:>7,} in the model"
            print(f"{line}: {row['ratio']:.2f}")
    return 0 if all(is_near(*each) for each in compared.values()) else 1

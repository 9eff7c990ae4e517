"""``lockcache top``: directories as they fill and are emptied."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import click

from lockcache.cli import options
from lockcache.cli.keyboard import single_keys, wait_for_quit
from lockcache.cli.open_directory import look
from lockcache.cli.output import elapsed, plain, span
from lockcache.cli.top_sample import Look, Watch
from lockcache.sizes import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["command"]

_NAME: Final = 12


def _parse_interval(text: str) -> float:
    from lockcache.sizes import parse_duration

    seconds = parse_duration(text)
    if not 0.1 <= seconds <= 3600:
        raise ValueError(f"{text!r} is out of range; accepted: 100ms to 1h, such as 2s")
    return seconds


@click.command("top")
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(file_okay=False))
@click.option(
    "--interval",
    metavar="DURATION",
    default="1s",
    show_default=True,
    callback=options.by(_parse_interval),
    help="Between two looks: 100ms to 1h.",
)
@click.option("--once", is_flag=True, help="One look, printed; as where the output is not a terminal.")
@click.option("--json", "as_json", is_flag=True, help="One look, one JSON object for each DIR.")
def command(directories: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Watch directories: bytes against the cap, rates, writes under way, what was used last. 'q' or Ctrl-C ends it.

    Hits, misses, puts and evictions a second are those that programs report (some only when they end) and the daemon's.
    A look costs the same at ten and at a million entries: of a large directory the latest entries are gathered a few
    shards at a time. Changes nothing.

    \b
    Examples:
      lockcache top
      lockcache top --interval 5s /scratch/kernels ~/.cache/cuda-python/program-cache
      lockcache top --json /scratch/kernels | jq .bytes
    """
    watches = [Watch(look(directory)) for directory in directories or (None,)]
    if as_json:
        for watch in watches:
            click.echo(json.dumps(watch.look().as_json()))
    elif once or not sys.stdout.isatty():
        _print([watch.look() for watch in watches])
    else:
        _watch(watches, interval)


def _watch(watches: list[Watch], interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    try:
        with single_keys(), Live(console=Console(), screen=True, auto_refresh=False) as live:
            while True:
                live.update(_render([watch.look() for watch in watches]), refresh=True)
                if wait_for_quit(interval):
                    return
    except KeyboardInterrupt:
        return  # how a view is left; there is nothing to undo


def _print(looks: list[Look]) -> None:
    from rich.console import Console

    # Wide enough for a log: a pipe has no width, and rich would cut at 80.
    Console(width=None if sys.stdout.isatty() else 160).print(_render(looks))


def _render(looks: list[Look]) -> RenderableType:
    from rich.console import Group

    return Group(_directories(looks), *(_latest(seen) for seen in looks if seen.newest))


def _directories(looks: list[Look]) -> Table:
    table = _table(
        "DIR",
        "HOLDS",
        "CAP",
        "SHARE",
        "ENTRIES",
        "STAGED",
        "HIT/S",
        "MISS/S",
        "PUT/S",
        "EVICT/S",
        "HITS",
        "SAVED",
        "DAEMON",
    )
    for seen in looks:
        if seen.gone is not None:
            _add(table, seen.path, f"gone: {seen.gone}")
            continue
        cap = seen.max_size_bytes
        rates = [f"{seen.rates[name]:.1f}" if name in seen.rates else "-" for name in _RATES]
        _add(
            table,
            seen.path,
            format_size(seen.bytes),
            "none" if cap is None else format_size(cap),
            "-" if cap is None else f"{seen.bytes / cap:.1%}",
            str(seen.entries),
            str(seen.staged_writes),
            *rates,
            "-" if seen.hit_ratio is None else f"{seen.hit_ratio:.1%}",
            span(seen.saved_ns) if seen.saved_ns else "-",
            seen.daemon or "none",
        )
    return table


_RATES: Final = ("hits", "misses", "puts", "evictions")


def _latest(seen: Look) -> Table:
    table = _table("LATEST", "SIZE", "USED", "COST", "KIND", "ARCH", "COMPILER")
    for entry in seen.newest:
        _add(
            table,
            entry.name[:_NAME],
            format_size(entry.size_bytes),
            elapsed(entry.last_use_ns),
            "-" if entry.cost_ns is None else span(entry.cost_ns),
            entry.kind or "-",
            entry.arch or "-",
            entry.compiler or "-",
        )
    return table


def _table(*heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold" if head == "DIR" else "ellipsis", no_wrap=head != "DIR")
    return table


def _add(table: Table, *cells: str) -> None:
    from rich.text import Text

    table.add_row(*(Text(plain(cell)) for cell in cells))

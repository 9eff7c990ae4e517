# SPDX-License-Identifier: Apache-2.0
"""``lockcache top``: directories as they fill and are emptied."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click

from lockcache.cli import options
from lockcache.cli.catalogue import open_catalogue
from lockcache.cli.output import paint
from lockcache.cli.top.keyboard import single_keys, wait_for_key
from lockcache.cli.top.sample import Watch, watch
from lockcache.cli.top.view import Line, draw
from lockcache.sizes import json_text, parse_duration


def _parse_interval(text: str) -> float:
    seconds = parse_duration(text)
    if not 0.1 <= seconds <= 3600:
        raise ValueError(f"{text!r} is out of range; accepted: 100ms to 1h, such as 2s")
    return seconds


@click.command("top")
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=options.Directory())
@click.option(
    "--interval",
    metavar="DURATION",
    default="1s",
    show_default=True,
    callback=options.parsed_by(_parse_interval),
    help="Time between two updates: 100ms to 1h.",
)
@click.option("--once", is_flag=True, help="Print once and exit; the default if the output is not a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print a line with a JSON object for each DIR at each update.")
def command(directories: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Watch directories: size, rates, current writes, latest entries. 'q' or Ctrl-C ends it.

    Rates per second are of the hits, misses, puts and evictions that programs report (some report only when they
    end), and of the daemon's evictions. An update costs the same for ten entries and for a million: the latest
    entries of a large directory are collected a few shards at a time. Directories of other programs are walked, for a
    tenth of the time at most. Changes nothing.

    \b
    Examples:
      lockcache top
      lockcache top --interval 5s /scratch/kernels ~/.cache/cuda-python
      lockcache top --json --once /scratch/kernels | jq .bytes
      lockcache top --json --interval 10s /scratch/kernels >> kernels.ndjson
    """
    watches = [watch(open_catalogue(directory)) for directory in directories or (None,)]
    if as_json:
        _stream(watches, None if once else interval)
    elif once or not sys.stdout.isatty():
        # Wide enough for a log: a pipe has no width.
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_A_LOG
        for line in draw([each.look() for each in watches], width, None, None):
            click.echo(line.text)
    else:
        _watch(watches, interval)


def _stream(watches: list[Watch], interval: float | None) -> None:
    while True:
        for each in watches:
            click.echo(json_text(each.look().as_json()))
        if interval is None:
            return
        time.sleep(interval)


def _watch(watches: list[Watch], interval: float) -> None:
    is_helping = False
    try:
        with single_keys(), _screen() as show:
            while True:
                looks = [each.look() for each in watches]
                width, height = shutil.get_terminal_size()
                show(draw(looks, width, height, interval, is_helping=is_helping))
                key = wait_for_key(interval, "q?")
                if key == "q":
                    return
                is_helping ^= key == "?"
    except KeyboardInterrupt:
        return  # how a view is left; there is nothing to undo


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[Sequence[Line]], None]]:
    """Use the terminal's other screen, without a cursor. Yields a function that fills it with lines."""

    def show(lines: Sequence[Line]) -> None:
        # Each line is cleared in front of its text: behind a full line the cursor stands on the last character.
        shown = "\r\n".join(f"\x1b[2K{paint(line.text, line.style)}" for line in lines)
        click.echo(f"\x1b[H{shown}\x1b[J", nl=False)

    click.echo("\x1b[?1049h\x1b[?25l", nl=False)
    try:
        yield show
    finally:
        with contextlib.suppress(OSError):  # the terminal was closed: there is nothing to restore
            click.echo("\x1b[?25h\x1b[?1049l", nl=False)


_WIDTH_OF_A_LOG: Final = 160

# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal, for commands that take longer than a moment. On stderr: stdout is for results."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import click

from lockcache.cli.output import plain
from lockcache.cli.tables import fit, width_of
from lockcache.sizes import format_size

_CLEAR_TO_END: Final = "\x1b[K"
_CELLS: Final = 20
# Between two pictures of a bar; quicker ones nobody reads.
_PAUSE_SECONDS: Final = 0.1
# Work that takes less time shows no bar: it would only flicker.
_FIRST_SECONDS: Final = 0.5
_WIDTH_UNKNOWN: Final = 80


@contextlib.contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a line in place of the last one, which is removed at the end.

    Shows nothing without a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return

    is_shown = False

    def show(text: str) -> None:
        nonlocal is_shown
        is_shown, line = True, plain(text)
        with contextlib.suppress(OSError):  # a terminal that is gone does not end the work
            # The cursor goes back, so that what is said meanwhile begins at the margin.
            click.echo(f"{fit(line, min(width_of(line), _columns() - 1))}{_CLEAR_TO_END}\r", nl=False, err=True)

    try:
        yield show
    finally:
        if is_shown:
            show("")


def _columns() -> int:
    stated = os.environ.get("COLUMNS", "")
    columns = int(stated) if stated.isascii() and stated.isdigit() else 0
    return columns or os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH_UNKNOWN


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields ``show(done_bytes, of_bytes)``, which shows a bar with the bytes, their rate and the time left."""
    with status_line() as show_line:
        bar = _Bar(label, show_line)

        def show(done_bytes: int, of_bytes: int) -> None:
            rate = f"{format_size(int(done_bytes / bar.elapsed_seconds))}/s"
            of = f" of {format_size(of_bytes)}" if of_bytes else ""  # of a pipe nobody knows it
            bar.show(done_bytes, of_bytes, f"{format_size(done_bytes)}{of}, {rate}")

        yield show


@contextlib.contextmanager
def step_bar(label: str, steps: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances a bar for work of ``steps`` steps."""
    with status_line() as show_line:
        bar, done_steps = _Bar(label, show_line), 0

        def advance(done: int) -> None:
            nonlocal done_steps
            done_steps += done
            bar.show(done_steps, steps)

        yield advance


class _Bar:
    """A bar of ``#``, at most ten times a second."""

    def __init__(self, label: str, show_line: Callable[[str], None]) -> None:
        self._label = label
        self._show_line = show_line
        self._began = time.monotonic()
        self._next = self._began + _FIRST_SECONDS

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the bar was made, more than none."""
        return max(time.monotonic() - self._began, 0.001)

    def show(self, done: int, of: int, words: str = "") -> None:
        """Show how much is done, with further words."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE_SECONDS
        share = min(1.0, done / of) if of else 0.0
        filled = round(share * _CELLS)
        left = f"  {_clock(self.elapsed_seconds * (1 - share) / share)} left" if share else ""
        self._show_line(f"{self._label} [{'#' * filled}{'-' * (_CELLS - filled)}] {share:4.0%}  {words}{left}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"

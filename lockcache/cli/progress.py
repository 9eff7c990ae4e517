"""A progress bar on a terminal, for commands that take longer than a moment. On stderr: stdout is for results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields ``show(done_bytes, of_bytes)``. Shows nothing without a terminal, and removes the bar at the end."""
    if not sys.stderr.isatty():
        yield lambda done_bytes, of_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done_bytes, of_bytes: progress.update(task, completed=done_bytes, total=of_bytes)


@contextlib.contextmanager
def step_bar(label: str, steps: int) -> Iterator[Callable[[int], None]]:
    """Show a bar like :func:`progress_bar` for work of ``steps`` steps. Yields a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=steps)
        yield lambda done: progress.advance(task, done)

"""A progress bar on a terminal, for what takes longer than a breath. On stderr: stdout is for what was asked for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Gives ``show(done_bytes, of_bytes)``. Shows nothing where nobody looks, and is gone afterwards."""
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
    """As :func:`progress_bar`, for work of so many steps. Gives what advances it by some."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=steps)
        yield lambda done: progress.advance(task, done)

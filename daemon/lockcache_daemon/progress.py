"""A progress bar for one complete pass, where somebody is watching. Keeps logs free of it: only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lockcache.filestream.layout import SHARDS

__all__ = ["counting_progress"]


@contextmanager
def counting_progress(directories: int) -> Iterator[Callable[[], None]]:
    """A bar over the shards of so many directories, if stderr is a terminal. Gives what advances it by a shard."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("counting"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("counting", total=directories * SHARDS)
        yield lambda: progress.advance(task)

"""``lockcache clear``: remove every entry."""

from __future__ import annotations

import click

from lockcache import FileStreamProgramCache
from lockcache.cli import options
from lockcache.cli.opening import open_directory
from lockcache.filestream.layout import SHARDS
from lockcache.filestream.scan import count_shard

__all__ = ["command"]


@click.command("clear")
@options.directory
@options.yes
def command(directory: str | None, yes: bool) -> None:
    """Remove every entry. Safe while others use the cache: they miss, and compile again.

    \b
    Examples:
      lockcache clear
      lockcache clear --yes /scratch/kernels
    """
    layout = open_directory(directory).layout
    if not yes:
        entries = sum(count_shard(layout, shard) for shard in range(SHARDS))
        click.confirm(f"Remove {entries} entries from {layout.root}?", abort=True)
    FileStreamProgramCache(layout.root).clear()

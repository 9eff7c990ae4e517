"""``lockcache clear``: remove every entry."""

from __future__ import annotations

import click

from lockcache import FileStreamProgramCache
from lockcache.arguments import PROGRAM_VARIABLES, variables_left_alone
from lockcache.cli import options
from lockcache.cli.open_directory import open_directory, recounted_when_interrupted
from lockcache.cli.output import ask, print_json
from lockcache.lowlevel import SHARDS, count_shard

__all__ = ["command"]


@click.command("clear")
@options.directory
@options.yes
@options.as_json
def command(directory: str | None, yes: bool, as_json: bool) -> None:
    """Remove every entry. Safe while others use the cache: they miss, and compile again.

    \b
    Examples:
      lockcache clear
      lockcache clear --yes /scratch/kernels
    """
    opened = open_directory(directory)
    layout = opened.layout
    if not yes:
        entries = sum(count_shard(layout, shard) for shard in range(SHARDS))
        # Also without a terminal, where no answer is a no: "all of it" is not to be had by accident.
        ask(f"Remove {entries} entries from {layout.root}?")
    # Removing verifies nothing, and changes no policy.
    with variables_left_alone(PROGRAM_VARIABLES):
        cache = FileStreamProgramCache(layout.root, signing_key_file=False)
    before = len(cache)
    with recounted_when_interrupted([opened]):
        cache.clear()
    if as_json:
        print_json({"path": layout.root, "removed_entries": max(0, before - len(cache))})

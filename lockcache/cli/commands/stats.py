"""``lockcache stats``: how full a cache is."""

from __future__ import annotations

import click

from lockcache.cli import options
from lockcache.cli.opening import held, open_directory
from lockcache.cli.output import cap_in_words, print_facts, size_in_words

__all__ = ["command"]


@click.command("stats")
@options.directory
@options.as_json
def command(directory: str | None, as_json: bool) -> None:
    """Show how full a cache is, against its cap.

    \b
    Examples:
      lockcache stats
      lockcache stats --json /scratch/kernels
    """
    opened = open_directory(directory)
    cap, slot = opened.policy.current().max_size_bytes, held(opened)
    found = {"path": opened.layout.root, "bytes": slot.bytes, "entries": slot.entries, "max_size_bytes": cap}
    print_facts(found, as_json, {"bytes": size_in_words(slot.bytes), "max_size_bytes": cap_in_words(cap)})

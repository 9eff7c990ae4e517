"""``lockcache recount``: make the accounting say what the disk holds."""

from __future__ import annotations

import click

from lockcache.cli import options
from lockcache.cli.open_directory import open_directory
from lockcache.cli.output import print_facts, size_in_words
from lockcache.lowlevel import recount_all


@click.command("recount")
@options.directory
@options.as_json
def command(directory: str | None, as_json: bool) -> None:
    """Make the accounting say what the disk holds.

    Needed after processes were killed, or where programs that do not account (cuda.core's own cache) write the
    directory, and no daemon runs. Safe while others use the cache.

    \b
    Examples:
      lockcache recount
      lockcache recount --json /scratch/kernels
    """
    opened = open_directory(directory)
    repairs = recount_all(opened)
    drift, slot = sum(repair.drift_bytes for repair in repairs), opened.held()
    found = {"path": opened.layout.root, "shards_repaired": len(repairs), "drift_bytes": drift, "bytes": slot.bytes}
    print_facts(found, as_json, {"drift_bytes": f"{drift:+} bytes", "bytes": size_in_words(slot.bytes)})

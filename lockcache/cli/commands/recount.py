# SPDX-License-Identifier: Apache-2.0
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
    """Correct the accounting: count the bytes that are on the disk.

    Needed without a daemon, after processes were killed, or if programs without accounting (cuda.core's own cache)
    write to the directory. Safe while others use the cache.

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

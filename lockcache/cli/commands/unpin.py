# SPDX-License-Identifier: Apache-2.0
"""``lockcache unpin``: lets entries go that were pinned."""

from __future__ import annotations

import click

from lockcache.cli import options
from lockcache.cli.commands.pin import report
from lockcache.cli.key_argument import complete_name, key_name
from lockcache.cli.open_directory import open_directory
from lockcache.filestream.eviction import change_pins, pinned_sizes
from lockcache.remote.manifest import read_manifest


@click.command("unpin")
@click.argument("keys", metavar="KEY...", nargs=-1, shell_complete=complete_name)
@click.option("--dir", "directory", metavar="DIR", type=options.Directory(), help="The cache directory.")
@click.option("--manifest", type=click.Path(dir_okay=False), metavar="FILE", help="Unpin what this manifest lists.")
@click.option("--all", "is_all", is_flag=True, help="Unpin everything.")
@options.as_json
def command(keys: tuple[str, ...], directory: str | None, manifest: str | None, is_all: bool, as_json: bool) -> None:
    """Let evictions choose pinned entries again. The entries need not be stored.

    KEY is a key as for 'lockcache rm', or the start of a hash that 'lockcache pin --list' prints.

    \b
    Examples:
      lockcache unpin 3f2a9c41
      lockcache unpin --all --dir /scratch/kernels
    """
    if not (keys or manifest or is_all):
        raise click.UsageError("Nothing says what to unpin: give KEY, --manifest FILE, or --all")
    opened = open_directory(directory)
    pinned = [pin.name for pin in pinned_sizes(opened.layout)]
    gone = set(pinned) if is_all else set(read_manifest(manifest)) if manifest else set[str]()
    for key in keys:
        gone.add(_pinned_as(key, pinned))
    report(opened.layout, "unpinned", change_pins(opened, remove=gone), as_json, {})


def _pinned_as(key: str, pinned: list[str]) -> str:
    """Returns the name of the pin that ``key`` means. Raises :class:`click.BadParameter`."""
    if key_name(key) in pinned:
        return key_name(key)
    begun = [name for name in pinned if name.startswith(key.lower())]
    if len(begun) != 1:
        what = "is not pinned" if not begun else "is the start of several hashes; give more digits"
        raise click.BadParameter(f"{key!r} {what}", param_hint="KEY")
    return begun[0]

# SPDX-License-Identifier: Apache-2.0
"""``lockcache rm``: remove single entries."""

from __future__ import annotations

import os

import click

from lockcache.cli import options
from lockcache.cli.key_argument import complete_name, refuse_lone_directory, resolve_name
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, open_directory, recounted_when_interrupted
from lockcache.cli.output import entry_lines, plain, print_json
from lockcache.filestream.entry import remove_entry
from lockcache.lowlevel import Layout, describe_entry, find_entry
from lockcache.sizes import counted


@click.command("rm")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True, shell_complete=complete_name)
@click.option("--dir", "directory", metavar="DIR", type=options.Directory(), help="The cache directory.")
@click.option("--dry-run", "-n", is_flag=True, help="Remove nothing; list the entries that would be removed.")
@options.as_json
def command(keys: tuple[str, ...], directory: str | None, dry_run: bool, as_json: bool) -> int:
    """Remove entries by key. Safe while others use them: they miss, and compile again.

    KEY is the key as text, hex: and the key's bytes in hex, the start of the entry's hash, or the kernel's name, as
    'lockcache ls' prints them. If an entry does not exist, none is removed. To remove entries by age, kind or
    architecture: lockcache evict.

    \b
    Examples:
      lockcache rm 3f2a9c41
      lockcache rm my-kernel hex:00ff10 --dir /scratch/kernels
    """
    if directory is None and len(keys) > 1 and os.path.isdir(keys[-1]):
        raise click.UsageError(f"{keys[-1]!r} is a directory: write --dir {keys[-1]}, since all arguments are keys")
    refuse_lone_directory(keys[0], directory, f"lockcache rm KEY --dir {keys[0]}")
    opened = open_directory(directory)
    names = list(dict.fromkeys(resolve_name(opened.layout, key) for key in keys))
    if dry_run:
        _rehearse(opened.layout, names, as_json)
        return 0
    opened.usage()  # a directory that may only be read is an error before anything is removed
    with recounted_when_interrupted([opened]):
        removed = [name for name in names if remove_entry(opened, name, LOCK_TIMEOUT_SECONDS, for_good=True)]
    if as_json:
        print_json({"path": opened.layout.root, "removed": removed})
    else:
        click.echo(plain(f"removed {counted(len(removed), 'entry')} from {opened.layout.root}"))
    return 0


def _rehearse(layout: Layout, names: list[str], as_json: bool) -> None:
    """Print the entries that would be removed."""
    if as_json:
        print_json({"path": layout.root, "would_remove": names})
        return
    found = [(name, find_entry(layout, name)) for name in names]
    for line in entry_lines((each and describe_entry(layout, each)) or name for name, each in found):
        click.echo(line)

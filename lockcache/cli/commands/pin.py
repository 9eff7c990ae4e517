# SPDX-License-Identifier: Apache-2.0
"""``lockcache pin``: entries that no eviction removes."""

from __future__ import annotations

from typing import Any

import click

from lockcache.cli import options
from lockcache.cli.key_argument import complete_name, resolve_name
from lockcache.cli.open_directory import look, open_directory
from lockcache.cli.output import entry_lines, plain, print_json, size_in_words
from lockcache.filestream.eviction import change_pins, most_pinned_bytes, pinned_sizes, stated_limit_bytes
from lockcache.lowlevel import Described, Layout, describe_entry, find_entry
from lockcache.remote.manifest import read_manifest
from lockcache.sizes import counted, format_size


@click.command("pin")
@click.argument("keys", metavar="KEY...", nargs=-1, shell_complete=complete_name)
@click.option("--dir", "directory", metavar="DIR", type=options.Directory(), help="The cache directory.")
@click.option(
    "--manifest", type=click.Path(dir_okay=False), metavar="FILE", help="Pin what this manifest lists and is stored."
)
@click.option("--list", "is_list", is_flag=True, help="List what is pinned, and change nothing.")
@options.as_json
def command(keys: tuple[str, ...], directory: str | None, manifest: str | None, is_list: bool, as_json: bool) -> None:
    """Keep entries: no eviction chooses them, by programs or the daemon. They count under the cap all the same.

    KEY is as for 'lockcache rm'. Pinned entries may take half of the cap; more is refused. If the cap is lowered, the
    first pins keep half. An entry that is stored again stays pinned; an entry that is removed, such as by 'lockcache
    rm', is pinned again when it is stored again. 'lockcache unpin' removes pins.

    \b
    Exit codes: 0 done; 2 a mistake in what was asked for, or too much to pin.

    \b
    Examples:
      lockcache pin 3f2a9c41 my-kernel
      lockcache pin --manifest job.manifest --dir /scratch/kernels
      lockcache pin --list
    """
    if is_list:
        if keys or manifest:
            raise click.UsageError("--list changes nothing: give no KEY and no --manifest")
        _list(look(directory), as_json)
        return
    if not keys and manifest is None:
        raise click.UsageError("Nothing says what to pin: give KEY, --manifest FILE, or --list")
    opened = open_directory(directory)
    layout = opened.layout
    wanted = [resolve_name(layout, key) for key in keys]
    if manifest is not None:
        wanted += sorted(read_manifest(manifest))
    names = [name for name in dict.fromkeys(wanted) if find_entry(layout, name) is not None]
    changed = change_pins(opened, add=names)
    missing = len(dict.fromkeys(wanted)) - len(names)
    report(layout, "pinned", changed, as_json, {"not_stored": missing} if manifest or missing else {})


def report(layout: Layout, done: str, changed: list[str], as_json: bool, more: dict[str, int]) -> None:
    """Print what was changed, and what is pinned now."""
    pins, limit = pinned_sizes(layout), stated_limit_bytes(layout)
    taken = sum(pin.size_bytes for pin in pins)
    if as_json:
        room = None if limit is None else most_pinned_bytes(limit)
        body: dict[str, Any] = {"path": layout.root, done: changed, **more}
        print_json({**body, "pins": len(pins), "pinned_bytes": taken, "most_pinned_bytes": room})
        return
    rest = f"; {counted(more['not_stored'], 'key')} not stored, and not pinned" if more.get("not_stored") else ""
    of_cap = "" if limit is None else f" of {format_size(most_pinned_bytes(limit))} that may be"
    click.echo(plain(f"{done} {counted(len(changed), 'entry')} in {layout.root}{rest}"))
    click.echo(f"pinned now: {counted(len(pins), 'entry')}, {size_in_words(taken)}{of_cap}")


def _list(layout: Layout, as_json: bool) -> None:
    pins = pinned_sizes(layout)
    if as_json:
        print_json({"path": layout.root, "pins": [pin._asdict() for pin in pins]})
        return
    described = (_described(layout, pin.name) for pin in pins)
    for line in entry_lines(described):
        click.echo(line)


def _described(layout: Layout, name: str) -> Described | str:
    """Returns an entry; its name where there is none now."""
    found = find_entry(layout, name)
    return (found and describe_entry(layout, found)) or name

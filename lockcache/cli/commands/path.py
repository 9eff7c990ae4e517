"""``lockcache path``: which directory would be used."""

from __future__ import annotations

import sys

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.output import plain, print_json


@click.command("path")
@options.directory
@options.as_json
def command(directory: str | None, as_json: bool) -> None:
    """Print the absolute path of the cache directory that is used.

    \b
    Examples:
      lockcache path
      du -sh "$(lockcache path)"
    """
    path = resolve_path(directory)
    if as_json:
        print_json({"path": path})
    else:
        # As it is for a program, which click would spare what looks like colour; a terminal obeys no name.
        click.echo(plain(path) if sys.stdout.isatty() else path, color=True)

# SPDX-License-Identifier: Apache-2.0
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
        # Unchanged for a program, for which click would strip what looks like colour; escaped for a terminal.
        click.echo(plain(path) if sys.stdout.isatty() else path, color=True)

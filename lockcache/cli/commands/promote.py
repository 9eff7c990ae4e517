"""``lockcache promote``: what a job compiled goes into the bundle that the next job begins with."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from lockcache.cli import options
from lockcache.cli.commands.pack import refuse_inside
from lockcache.cli.open_directory import look
from lockcache.cli.output import print_facts
from lockcache.cli.seeded_run import promote_with_bar
from lockcache.cli.signals import end_in_order
from lockcache.sizes import counted


@click.command("promote")
@click.argument("directory", metavar="DIR")
@click.argument("file", metavar="FILE")
@click.option(
    "--max-size", callback=options.size, metavar="SIZE", help="The oldest programs leave until the bundle is so large."
)
@options.as_json
def command(directory: str, file: str, max_size: int | None, as_json: bool) -> int:
    """Put what DIR has, and the bundle FILE lacks, into FILE.

    FILE is made if it is missing, and replaced when the new one is whole: programs that read it go on with what they
    opened. Any number of hosts may promote into one file at once; they take turns, and nothing of any of them is lost.
    Where there is nothing to add the file stays as it is.

    Exit codes: 0 done; 1 something was damaged and is left out, or the bundle could not be written; 2 a mistake in what
    was asked for, or FILE is not a bundle.

    \b
    Examples:
      lockcache promote /scratch/kernels /lustre/project/kernels.lcb
      lockcache promote --max-size 2G /scratch/kernels kernels.lcb
    """
    layout = look(directory)
    refuse_inside(file, layout)
    end_in_order()  # what is half written goes
    promoted = promote_with_bar(layout, file, max_size)
    print_facts({"path": layout.root, "file": os.path.abspath(os.path.expanduser(file)), **asdict(promoted)}, as_json)
    if promoted.damaged:
        click.echo(f"lockcache: {counted(promoted.damaged, 'damaged entry')} left out", err=True)
    return 1 if promoted.damaged else 0

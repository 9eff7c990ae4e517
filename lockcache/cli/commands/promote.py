# SPDX-License-Identifier: Apache-2.0
"""``lockcache promote``: what a job compiled goes into the bundle that the next job begins with."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from lockcache.cli import options
from lockcache.cli.commands.pack import refuse_inside
from lockcache.cli.open_directory import are_swapped, look
from lockcache.cli.output import print_facts
from lockcache.cli.running.seeded import promote_with_bar
from lockcache.cli.signals import end_in_order
from lockcache.sizes import counted


@click.command("promote")
@click.argument("directory", metavar="DIR")
@click.argument("file", metavar="FILE")
@click.option(
    "--max-size",
    callback=options.size,
    metavar="SIZE",
    help="Leave out the oldest kernels until the bundle is no larger.",
)
@options.as_json
def command(directory: str, file: str, max_size: int | None, as_json: bool) -> int:
    """Add the entries of DIR that the bundle FILE lacks to FILE.

    FILE is created if it is missing. Otherwise it is replaced once the new bundle is complete, and programs that have
    it open continue to read the old one. Any number of hosts may promote into one file at the same time: they take
    turns, and no entry of any host is lost. If there is nothing to add, FILE is not changed. Entries without a record,
    which nothing can verify, are left out, and so is what only the seed of DIR has.

    Exit codes: 0 done; 1 damaged kernels were left out, or FILE could not be written; 2 the command line is wrong,
    or FILE is not a bundle.

    \b
    Examples:
      lockcache promote /scratch/kernels /lustre/project/kernels.lcb
      lockcache promote --max-size 2G /scratch/kernels kernels.lcb
    """
    if are_swapped(file, directory):
        raise click.UsageError(f"DIR comes first: lockcache promote {file} {directory}")
    layout = look(directory)
    refuse_inside(file, layout)
    end_in_order()  # what is half written goes
    promoted = promote_with_bar(layout, file, max_size)
    print_facts({"path": layout.root, "file": os.path.abspath(os.path.expanduser(file)), **asdict(promoted)}, as_json)
    if promoted.damaged:
        click.echo(f"lockcache: {counted(promoted.damaged, 'damaged entry')} left out", err=True)
    return 1 if promoted.damaged else 0

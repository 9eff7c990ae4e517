# SPDX-License-Identifier: Apache-2.0
"""``lockcache env``: the variables that put frameworks on lockcache, for a shell."""

from __future__ import annotations

import shlex

import click

from lockcache.cli import options
from lockcache.cli.output import print_json
from lockcache.integrations.environment import FRAMEWORKS, variables_for, without_variables


@click.command("env")
@click.argument("frameworks", metavar="FRAMEWORK...", nargs=-1, required=True, type=click.Choice(sorted(FRAMEWORKS)))
@click.option("--dir", "directory", metavar="DIR", help="The directory. [default: that of lockcache path]")
@click.option("--max-size", metavar="SIZE", callback=options.checked_size, help='The cap, such as "10G".')
@options.as_json
def command(frameworks: tuple[str, ...], directory: str | None, max_size: str | None, as_json: bool) -> None:
    """Print the variables that make FRAMEWORKS use lockcache.

    All but Helion, JAX and Triton also need a line of code, such as lockcache.integrations.cupy.install(). With
    'lockcache run', none needs it.

    \b
    Examples:
      eval "$(lockcache env jax triton)"
      lockcache env jax cupy --dir /scratch/kernels --max-size 10G
    """
    variables = variables_for(frameworks, directory, max_size)
    if as_json:
        print_json(variables)
    else:
        for name, value in variables.items():
            click.echo(f"export {name}={shlex.quote(value)}")
    for name in without_variables(frameworks):
        line = f"lockcache.integrations.{name}.install()"
        click.echo(f"lockcache: {name} needs {line} in the program, or 'lockcache run' in front of it", err=True)

# SPDX-License-Identifier: Apache-2.0
"""``lockcache completion``: what a shell needs to complete commands, options, directories and hashes."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

# Comments in all three shells, so that the output can be evaluated as it is.
_INSTRUCTIONS: Final = {
    "bash": """# Put this line into ~/.bashrc:
#   eval "$(lockcache completion bash)"
""",
    "zsh": """# Put this line into ~/.zshrc, after compinit:
#   eval "$(lockcache completion zsh)"
""",
    "fish": """# Run this once:
#   lockcache completion fish > ~/.config/fish/conf.d/lockcache.fish
""",
}
_PROGRAMS: Final = ("lockcache", "lockcache-daemon", "lockcache-stress")


@click.command("completion")
@click.argument("shell", type=click.Choice(tuple(_INSTRUCTIONS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL for lockcache, lockcache-daemon and lockcache-stress.

    It completes commands, options, directories, and the hashes of entries.

    \b
    Examples:
      eval "$(lockcache completion bash)"        in ~/.bashrc
      eval "$(lockcache completion zsh)"         in ~/.zshrc
      lockcache completion fish > ~/.config/fish/conf.d/lockcache.fish
    """
    complete = get_completion_class(shell)
    if complete is None:
        raise click.ClickException(f"this version of click cannot complete for {shell}")
    root = context.find_root().command  # a script names a program, and asks that program itself
    scripts = (complete(root, {}, name, f"_{name.upper().replace('-', '_')}_COMPLETE").source() for name in _PROGRAMS)
    click.echo(_INSTRUCTIONS[shell] + "\n".join(scripts))

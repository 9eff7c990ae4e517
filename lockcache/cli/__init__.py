"""``lockcache``, the operator's command: parses and prints, decides nothing.

Needs the ``cli`` extra; without it the command says so in one line.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    try:
        from lockcache.cli.commands import cli
    except ModuleNotFoundError as error:
        sys.exit(f"lockcache: needs {error.name}; run: pip install 'lockcache[cli]'")
    cli(prog_name="lockcache")

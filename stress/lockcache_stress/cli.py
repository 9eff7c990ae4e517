"""``lockcache-stress``: parses options, runs, prints. Decides nothing but exit codes.

0: everything is as it must be. 1: something is not. 2: bad usage, or what is asked for cannot be had here. 130: Ctrl-C;
143: SIGTERM; 129: SIGHUP, the terminal was closed.
"""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]

_USAGE = 2
_INTERRUPTED = 130


def main() -> NoReturn:
    """The console script."""
    try:
        from lockcache.cli.signals import end_in_order
        from lockcache_stress.commands import run_command_line
    except ImportError as error:
        from lockcache.errors import how_to_install

        _fail(f"needs {error.name or error}: {how_to_install('cli')}")
    # As an exception, so that every worker is ended and every directory and mount removed on the way out.
    end_in_order()
    try:
        sys.exit(run_command_line())
    except KeyboardInterrupt:
        print("lockcache-stress: interrupted; all processes ended, temporary files removed", file=sys.stderr)
        sys.exit(_INTERRUPTED)


def _fail(message: str) -> NoReturn:
    print(f"lockcache-stress: {message}", file=sys.stderr)
    sys.exit(_USAGE)

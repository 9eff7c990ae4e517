"""``lockcache-stress``: parses options, runs, prints. Decides nothing but exit codes.

0: everything is as it must be. 1: something is not. 2: bad usage, or what is asked for cannot be had here. 130: Ctrl-C;
143: SIGTERM; 129: SIGHUP, the terminal was closed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lockcache.cli import run_program

_INTERRUPTED = 130


def main() -> None:
    """Run the console script."""
    run_program("lockcache-stress", "cli", _run)


def _run(arguments: Sequence[str]) -> int:
    from lockcache.cli.signals import end_in_order, interrupts_raise
    from lockcache_stress.commands import run_command_line

    interrupts_raise()
    # As an exception, so that every worker is ended and every directory and mount removed on the way out.
    end_in_order()
    try:
        return run_command_line()
    except KeyboardInterrupt:
        print("lockcache-stress: interrupted; all processes ended, temporary files removed", file=sys.stderr)
        return _INTERRUPTED

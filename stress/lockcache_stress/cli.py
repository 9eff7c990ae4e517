# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress``: parses options, runs, prints. Decides nothing but exit codes.

The exit codes are 0 if every check passed, 1 if one failed, 2 for bad usage or something that cannot be had here, 130
for Ctrl-C, 143 for SIGTERM, and 129 for SIGHUP (the terminal was closed).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lockcache.cli import run_program

_INTERRUPTED = 130


def main() -> None:
    """Run the console script."""
    run_program("lockcache-stress", _run)


def _run(arguments: Sequence[str]) -> int:
    from lockcache.cli.signals import end_in_order, interrupts_raise
    from lockcache_stress.commands import run_command_line

    interrupts_raise()
    # Signals raise an exception, so that every worker is ended and every directory and mount removed on the way out.
    end_in_order()
    try:
        return run_command_line()
    except KeyboardInterrupt:
        print("lockcache-stress: interrupted; all processes ended, temporary files removed", file=sys.stderr)
        return _INTERRUPTED

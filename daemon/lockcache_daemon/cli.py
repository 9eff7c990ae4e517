# SPDX-License-Identifier: Apache-2.0
"""The console script's entry point."""

from __future__ import annotations

from collections.abc import Sequence

from lockcache.cli import fill_closed_streams, run_program


def main() -> None:
    """Run ``lockcache-daemon`` on ``sys.argv`` and exit; see ``--help`` for the codes."""

    def run(arguments: Sequence[str]) -> int:
        fill_closed_streams()
        from lockcache_daemon.command import run

        return run(arguments)

    run_program("lockcache-daemon", run)

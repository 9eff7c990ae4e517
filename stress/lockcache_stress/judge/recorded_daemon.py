"""``lockcache-daemon`` with recorded removals: ``python -m lockcache_stress.judge.recorded_daemon FOLDER ARG...``."""

from __future__ import annotations

import os
import sys

from lockcache_stress.judge.operations import Recorder
from lockcache_stress.judge.removals import Watch

__all__ = ["main", "recorded_command"]


def recorded_command(folder: str) -> list[str]:
    """The command that runs it, without arguments of its own."""
    return [sys.executable, "-m", __name__, folder]


def main() -> None:
    """Run the daemon on the arguments behind the folder that the history goes to."""
    from lockcache_daemon.cli import main as run_daemon

    folder = sys.argv.pop(1)
    Watch(Recorder(folder, f"daemon-{os.getpid()}"))
    run_daemon()


if __name__ == "__main__":
    main()

"""``lockcache-daemon``, its removals recorded: ``python -m lockcache_stress.history.daemon FOLDER ARGUMENTS``."""

from __future__ import annotations

import os
import sys

from lockcache_stress.history.operations import Recorder
from lockcache_stress.history.watch import Watch

__all__ = ["main", "recorded_daemon"]


def recorded_daemon(folder: str) -> list[str]:
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

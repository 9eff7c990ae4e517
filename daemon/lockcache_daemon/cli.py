"""The console script's entry point. Keeps one promise: a plain install gets one clear line, not a traceback."""

from __future__ import annotations

import sys

__all__ = ["main"]

# What `pip install lockcache[cli]` brings.
_EXTRA = ("click", "durationpy", "pydantic", "rich", "tomli")


def main() -> None:
    """Run ``lockcache-daemon`` on ``sys.argv`` and exit; see ``--help`` for the codes."""
    try:
        from lockcache_daemon.command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(f"lockcache-daemon: needs {error.name}: pip install 'lockcache[cli]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))

"""The console script's entry point. Keeps one promise: a plain install gets one clear line, not a traceback."""

from __future__ import annotations

import os
import sys

# What the extra `daemon` brings, but for metrics.
_EXTRA = ("click", "durationpy", "pydantic", "rich", "tomli")


def main() -> None:
    """Run ``lockcache-daemon`` on ``sys.argv`` and exit; see ``--help`` for the codes."""
    if sys.platform != "linux":
        print(f"lockcache-daemon: needs Linux, and this is {sys.platform}", file=sys.stderr)
        sys.exit(2)
    try:
        _have_standard_streams()
        from lockcache_daemon.command import run

        code = run(sys.argv[1:])  # in here too: what reads sizes and durations is loaded when there is one to read
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        from lockcache.errors import how_to_install

        print(f"lockcache-daemon: needs {error.name}: {how_to_install('daemon')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)  # while modules were being loaded: from then on signals are heard
    sys.exit(code)


def _have_standard_streams() -> None:
    """Open what was closed (``>&-``): else a lock or the accounting would get its number, and what is said go there."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or open(os.devnull)  # noqa: SIM115 (for as long as we run); to write to it is an error
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115

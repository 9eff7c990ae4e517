"""``lockcache``, the operator's command: parses and prints, decides nothing.

Needs the ``cli`` extra; without it the command says so in one line, in the words of all our commands, and exits with 2.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

# What `pip install lockcache[cli]` brings. Anything else that is missing is a broken install, and worth a traceback.
_EXTRA = ("click", "durationpy", "elftools", "pydantic", "rich", "zstandard")


def main() -> None:
    """Entry point of the console script."""
    try:
        from lockcache.cli.program import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(f"lockcache: needs {error.name}: pip install 'lockcache[cli]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)  # before the command was reached: modules were being loaded
    sys.exit(code)

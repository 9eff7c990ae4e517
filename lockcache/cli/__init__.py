"""``lockcache``, the operator's command: parses and prints, decides nothing.

Needs the ``cli`` extra; without it the command says so in one line, in the words of all our commands, and exits with 2.
"""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["main"]

# Where a stream is closed (`>&-`): one that fails when it is used, but stderr, where nothing can be reported.
_CLOSED: Final = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))

# What the extra `cli` brings. Anything else that is missing is a broken install, and worth a traceback.
_EXTRA = ("click", "durationpy", "pydantic", "rich", "zstandard")


def main() -> None:
    """Entry point of the console script."""
    if sys.platform != "linux":
        print(f"lockcache: needs Linux, and this is {sys.platform}", file=sys.stderr)
        sys.exit(2)
    try:
        _fill_closed_streams()
        from lockcache.cli.program import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        from lockcache.errors import how_to_install

        print(f"lockcache: needs {error.name}: {how_to_install('cli')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)  # before the command was reached: modules were being loaded
    sys.exit(code)


def _fill_closed_streams() -> None:
    """Put something in the place of each closed stream: Python has ``None`` there, and the next file would be in it."""
    for name, mode, flags in _CLOSED:
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))

"""``lockcache``, the operator's command: parses and prints, decides nothing.

Here is what its entry point has in common with those of ``lockcache-daemon`` and ``lockcache-stress``: where a program
needs an extra it says so in one line, in the words of all our commands, and exits with 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["fill_closed_streams", "main", "run_program"]

# The modes of replacements for closed streams (`>&-`): they fail at the first use, except stderr, where nothing can be
# reported.
_CLOSED: Final = {"stdin": "w", "stdout": "r", "stderr": "w"}

# The extra of the packages that are imported when they are needed. Any other missing package is a broken install, and
# worth a traceback.
_EXTRA: Final = "cli"
_OF_EXTRA: Final = ("rich", "zstandard")


def main() -> None:
    """Entry point of the console script."""

    def run(arguments: Sequence[str]) -> int:
        fill_closed_streams()
        from lockcache.cli.program import run

        return run(arguments)

    run_program("lockcache", run)


def run_program(name: str, run: Callable[[Sequence[str]], int]) -> None:
    """Exit with what ``run`` returns for the arguments. Its modules are imported in it: some need an extra."""
    if sys.platform != "linux":
        print(f"{name}: needs Linux, and this is {sys.platform}", file=sys.stderr)
        sys.exit(2)
    try:
        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OF_EXTRA:
            raise
        from lockcache.errors import how_to_install

        print(f"{name}: needs {error.name}: {how_to_install(_EXTRA)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)  # before the command was reached: modules were being loaded
    sys.exit(code)


def fill_closed_streams() -> None:
    """Put something in the place of each closed stream: Python has ``None`` there, and a lock, the accounting, or
    whatever is opened next would get its number, and what is printed go there."""
    for name, mode in _CLOSED.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (for as long as we run)

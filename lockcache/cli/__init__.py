# SPDX-License-Identifier: Apache-2.0
"""``lockcache``, the operator's command: parses and prints, decides nothing.

Here is what its entry point has in common with those of ``lockcache-daemon`` and ``lockcache-stress``: where a program
needs an extra it says so in one line, in the words of all our commands, and exits with 2. Passwords among their
arguments leave the process list, which every user of the host may read.
"""

from __future__ import annotations

import contextlib
import os
import re
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

# In /proc/self/stat, counted behind the name of the program, which may be anything: where the arguments begin and end.
_BEGIN, _END = 45, 46
_LONGEST_BYTES: Final = 4 << 20
# Behind this, what may hold a password: in a URL, in whatever argument, and in a server that is not a URL.
_URL: Final = re.compile(rb"://|^--remote=")
# Without any of these nothing is a secret: a command such as `lockcache stats` loads no forms of them.
_MAY_BE: Final = re.compile(r"[@?=:]|^--?[A-Za-z]|[\w~+-]{16}")


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
    with contextlib.suppress(OSError, ValueError, IndexError):
        _hide_secrets()
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


def _hide_secrets() -> None:
    """Overwrite what has the form of a secret among this process's arguments.

    All of them, also those that another option replaces, and those of a command that is to be run. Not promised: that
    nobody read them before. Raises :class:`OSError` and others where the kernel does not say where they are.
    """
    if not any(map(_MAY_BE.search, sys.argv[1:])):
        return
    with open("/proc/self/stat", "rb") as file:
        fields = file.read(4096).rpartition(b")")[2].split()
    begin, end = int(fields[_BEGIN]), int(fields[_END])
    if not 0 < begin < end <= begin + _LONGEST_BYTES:
        return
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            for first, last in _secrets_in(memory.read(end - begin)):
                memory.seek(begin + first)
                memory.write(b"*" * (last - first))
    except OSError:  # of a program with more rights than its user, or in a sandbox
        from_here, sys.path[:1] = sys.path[:1], []  # `python -m lockcache` would load a module of the current folder
        try:
            import ctypes
        finally:
            sys.path[:0] = from_here
        for first, last in _secrets_in(ctypes.string_at(begin, end - begin)):
            ctypes.memset(begin + first, ord("*"), last - first)


def _secrets_in(arguments: bytes) -> list[tuple[int, int]]:
    """Returns where secrets stand in arguments, each of which ends with a zero."""
    from lockcache.explain.secret_forms import secrets_in

    words = arguments.split(b"\0")
    found = secrets_in([word.decode("latin-1") for word in words])  # a character for each byte
    begin, last_word = 0, b""
    for word in words:
        end, url = begin + len(word), _URL.search(word)
        first = url.end() if url is not None else 0 if last_word == b"--remote" else len(word)
        if b"@" in word[first:] or b"?" in word[first:]:
            found.append((begin + first, end))
        begin, last_word = end + 1, word
    return found


def fill_closed_streams() -> None:
    """Put something in the place of each closed stream: Python has ``None`` there, and a lock, the accounting, or
    whatever is opened next would get its number, and what is printed go there."""
    for name, mode in _CLOSED.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (for as long as we run)

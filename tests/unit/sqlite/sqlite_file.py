# SPDX-License-Identifier: Apache-2.0
"""The file of a SQLiteProgramCache, edited by a test, or locked by another process."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database without the cache, in autocommit mode."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@contextlib.contextmanager
def locked_elsewhere(path: Path, statement: str = "BEGIN IMMEDIATE") -> Iterator[Callable[[], None]]:
    """Start another process, which holds a lock on the database until the yielded function is called."""
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for each in sys.argv[2].split(';'): connection.execute(each).fetchall()\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
        "connection.close()\n"
    )
    arguments = [sys.executable, "-c", code, str(path), statement]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"

        def release() -> None:
            if process.poll() is None:
                process.stdin.close()  # type: ignore[union-attr]
                process.wait(30)

        try:
            yield release
        finally:
            release()

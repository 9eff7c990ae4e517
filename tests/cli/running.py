"""Runs the operator's command: in a forked process, or as another user. ``LOCKCACHE`` is its console script."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from lockcache.cli import main, program
from tests.access.members import MALLORY, run_as
from tests.programs import run_forked

LOCKCACHE = str(Path(sys.executable).with_name("lockcache"))


def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; keyword arguments are environment variables."""
    return run_forked(main, "lockcache", *arguments, stdin=stdin, env={**os.environ, **environment})


def give_to_somebody(root: Path) -> None:
    """Make everything there that user's for whom :func:`run_as_somebody` runs, who has no other rights."""
    for path in (root, *root.rglob("*")):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)


def run_as_somebody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """As :func:`run`, as a user who is not root: in a forked child, for he may not go where the script is."""

    def work() -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = program.run([*map(str, arguments)])
        return code, out.getvalue(), err.getvalue()

    return subprocess.CompletedProcess(arguments, *run_as(MALLORY, work))

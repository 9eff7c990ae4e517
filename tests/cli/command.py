# SPDX-License-Identifier: Apache-2.0
"""Runs the operator's command: in a forked process, as another user, or started. ``LOCKCACHE`` is its script."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path

from lockcache.cli import main, program
from lockcache.lowlevel import Layout, keeper_of
from tests.access.group_members import MALLORY, run_as
from tests.programs import ForkedProgram, run_forked

LOCKCACHE = str(Path(sys.executable).with_name("lockcache"))
ROOT = Path(__file__).parents[2]
RUN = (sys.executable, "-m", "lockcache", "run")

# A command that prints the manager of the directory, once there is one, and ends with its input.
KEPT = (
    "import sys, time; from lockcache.lowlevel import Layout, keeper_of\n"
    "while not keeper_of(Layout(sys.argv[1])): time.sleep(0.01)\n"
    "print(keeper_of(Layout(sys.argv[1])), flush=True); sys.stdin.read()"
)


def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. Keyword arguments are environment variables."""
    return run_forked(main, "lockcache", *arguments, stdin=stdin, env={**os.environ, **environment})


def start(*words: str, cwd: Path | None = None, **variables: str) -> ForkedProgram:
    """Start ``lockcache run`` in a forked process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    streams = {"stdin": -1, "stdout": -1, "stderr": -1, "text": True}
    return ForkedProgram(main, ["lockcache", "run", *words], env=environment, cwd=cwd, **streams)


def until_free(path: Path) -> None:
    """Wait until no daemon keeps the directory."""
    deadline = time.monotonic() + 60
    while keeper_of(Layout(str(path))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert keeper_of(Layout(str(path))) is None


def give_to_somebody(root: Path) -> None:
    """Give everything there to the user of :func:`run_as_somebody`, who has no other rights."""
    for path in (root, *root.rglob("*")):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)


def run_as_somebody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run like :func:`run`, as a user who is not root, in a forked child, because the user may not reach the script."""

    def work() -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = program.run([*map(str, arguments)])
        return code, out.getvalue(), err.getvalue()

    return subprocess.CompletedProcess(arguments, *run_as(MALLORY, work))

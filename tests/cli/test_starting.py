# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a program is loaded: it ends as a program in C does, and says nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Sends the signal where the module is to be imported, unless it was before.
_HOOK = """
import os, signal, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["LOADED"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
"""


def _interrupted(program: str, module: str, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "sitecustomize.py").write_text(_HOOK)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "LOADED": module}
    command = [*words, str(Path(sys.executable).with_name(program)), "--help"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, module",
    [
        ("lockcache", "lockcache"),
        ("lockcache", "lockcache.filestream"),
        ("lockcache", "click"),
        ("lockcache", "lockcache.cli.commands.stats"),
        ("lockcache-daemon", "lockcache"),
        ("lockcache-daemon", "lockcache_daemon.settings"),
        ("lockcache-stress", "lockcache"),
        ("lockcache-stress", "lockcache_stress.commands"),
    ],
)
def test_it_ends_by_the_signal(program: str, module: str, tmp_path: Path) -> None:
    ended = _interrupted(program, module, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.slow
def test_in_the_background_of_a_shell_it_goes_on(tmp_path: Path) -> None:
    ended = _interrupted("lockcache", "click", tmp_path, "sh", "-c", 'trap "" INT; exec "$@"', "sh")
    assert (ended.returncode, ended.stderr) == (0, ""), ended

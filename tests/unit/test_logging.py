# SPDX-License-Identifier: Apache-2.0
"""Where the library's log goes: stderr without any set-up, as ``LOCKCACHE_LOG`` says, or a program's own handlers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Waits for a thread, as for any other process; what is said after ten seconds is said at once.
WAITING = """
import logging, sys, threading
from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.compile_once import turns
{set_up}
turns._NOTICES = ((0.0, logging.INFO, "waiting"), (0.0, logging.WARNING, "still waiting"))
cache, began, said = FileStreamProgramCache(sys.argv[1]), threading.Event(), threading.Event()

class Heard(logging.Filter):
    def filter(self, record):
        if record.getMessage().startswith("still waiting"):
            said.set()
        return True

logging.getLogger("lockcache").addFilter(Heard())
cache.get_or_compute("gemm3 sm_90", lambda: Entry(b"older", {{"compile_cost_ns": 1_500_000_000}}))
del cache["gemm3 sm_90"]

def compute():
    began.set()
    assert said.wait(60)
    return b"code"

holder = threading.Thread(target=lambda: cache.get_or_compute("gemm3 sm_90", compute))
holder.start()
assert began.wait(60)
assert cache.get_or_compute("gemm3 sm_90", lambda: b"never") == b"code"
holder.join()
"""
BASIC = "logging.basicConfig(level=logging.INFO, format='own: %(message)s', stream=sys.stdout)"


def waited(path: Path, variable: str | None, set_up: str = "") -> tuple[list[str], list[str]]:
    """Returns what a program that waits shows on stdout, and on stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "LOCKCACHE_LOG"}
    if variable is not None:
        environment["LOCKCACHE_LOG"] = variable
    command = [sys.executable, "-c", WAITING.format(set_up=set_up), str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines(), ended.stderr.splitlines()


@pytest.mark.slow
def test_without_any_set_up_a_wait_is_one_line_that_says_for_whom_and_for_what(cache_path: Path) -> None:
    out, [line] = waited(cache_path, None)
    assert out == []
    assert re.match(
        rf"lockcache: still waiting for process \d+ on {os.uname().nodename} to compile gemm3 sm_90 \(", line
    )
    assert "it took 1.5 s the last time" in line


@pytest.mark.slow
@pytest.mark.parametrize("variable, levels", [("off", []), ("info", ["INFO", "WARNING"])])
def test_the_variable_says_what_is_shown(cache_path: Path, variable: str, levels: list[str]) -> None:
    out, lines = waited(cache_path, variable)
    assert out == []
    assert [line.split(":")[-3].split()[-1] for line in lines if "waiting" in line] == levels


@pytest.mark.slow
@pytest.mark.parametrize("variable", [None, "off"])
def test_who_configured_logging_gets_it_there_and_once(cache_path: Path, variable: str | None) -> None:
    out, lines = waited(cache_path, variable, BASIC)
    assert lines == []
    assert [line.split(" for ")[0] for line in out if "waiting" in line] == ["own: waiting", "own: still waiting"]


@pytest.mark.slow
def test_a_mistake_in_the_variable_is_a_warning(cache_path: Path) -> None:
    _, lines = waited(cache_path, "loud")
    assert lines[0] == "lockcache: LOCKCACHE_LOG: 'loud' is not off or info or debug"

"""Triton itself, in several processes, while a daemon evicts what they compile.

Triton is 300 MB, so it is not a dependency of the tests: install it here, or name an interpreter that has it in
``LOCKCACHE_TRITON_PYTHON``. What Triton's steps are is tested without it too, in :mod:`.test_layouts_process`.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.daemon_process import HANG_SECONDS, RunningDaemon
from tests.daemon.directory_kinds import bytes_of

_PYTHON = os.environ.get("LOCKCACHE_TRITON_PYTHON") or (sys.executable if importlib.util.find_spec("triton") else None)
_SCRIPT = Path(__file__).with_name("triton_crowd.py")

pytestmark = pytest.mark.skipif(
    _PYTHON is None, reason="needs Triton (300 MB): pip install triton, or name a Python in LOCKCACHE_TRITON_PYTHON"
)


def crowd(stack: ExitStack, root: Path, processes: int, seconds: float) -> list[subprocess.Popen[str]]:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(root), "PYTHONPATH": ""}
    made = []
    for seed in range(processes):
        command = [str(_PYTHON), "-W", "ignore", str(_SCRIPT), str(seed), str(seconds)]
        made.append(
            stack.enter_context(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
        )
        stack.callback(made[-1].kill)
    return made


def results(processes: list[subprocess.Popen[str]]) -> list[tuple[int, int]]:
    found = []
    for process in processes:
        out, errors = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0, errors
        hits, compiled = out.split()
        found.append((int(hits), int(compiled)))
    return found


def test_processes_that_compile_with_triton_survive_a_daemon_that_evicts_all_the_time(cache_path: Path) -> None:
    cache_path.mkdir(mode=0o700)
    options = ("--max-size", "60k", "--layout", "triton", "--settle", "300ms")
    with RunningDaemon(*options, cache_path) as daemon, ExitStack() as stack:
        found = results(crowd(stack, cache_path, 3, 25.0))
        assert all(hits and compiled for hits, compiled in found)
        # More than if each process had compiled each of the eight kernels: they were evicted, and came back.
        assert sum(compiled for _, compiled in found) > 3 * 8
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        assert daemon.end(signal.SIGTERM) == 0


def test_a_cache_that_triton_filled_is_recognised_bounded_and_still_served(cache_path: Path) -> None:
    cache_path.mkdir(mode=0o700)
    with ExitStack() as stack:
        results(crowd(stack, cache_path, 2, 8.0))
    before = bytes_of(cache_path)
    with RunningDaemon("--max-size", f"{before * 3 // 4}B", "--settle", "1ms", cache_path, starts=0) as daemon:
        assert daemon.wait_for("start")["layout"] == "triton"
        daemon.wait_for("sweep")
        assert daemon.end(signal.SIGTERM) == 0
    assert bytes_of(cache_path) < before
    with ExitStack() as stack:
        assert all(hits for hits, _ in results(crowd(stack, cache_path, 2, 5.0)))

# SPDX-License-Identifier: Apache-2.0
"""However a run ends, nothing is left of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.daemon.daemon_process import until
from tests.stress.support import PROGRAM, environment


def _start(run_path: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, *words],
        env=environment(run_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _has(run_path: Path, pattern: str) -> bool:
    return any(True for _ in run_path.glob(pattern))


def _descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def _all_gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=20)[1]


SAME_KEY = ("same-key", "--processes", "3", "--seconds", "600")
ENTRIES = "lockcache-stress-*/cache/entries/*/*"


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGHUP, id="without its terminal"),
    ],
)
def test_however_it_is_ended_every_process_ends_and_the_directory_goes(run_path: Path, number: signal.Signals) -> None:
    process = _start(run_path, *SAME_KEY)
    until(lambda: _has(run_path, ENTRIES))
    children = _descendants(process)
    # As a terminal does: Ctrl-C goes to all of them.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output + errors
    assert number != signal.SIGINT or len(errors.strip().splitlines()) == 1, errors
    assert _all_gone(children)
    assert os.listdir(run_path) == []


@pytest.mark.root
def test_a_benchmark_leaves_no_mount(run_path: Path) -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    process = _start(run_path, "bench", "put")
    until(lambda: str(run_path) in Path("/proc/self/mounts").read_text())
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output + errors
    assert str(run_path) not in Path("/proc/self/mounts").read_text()
    assert os.listdir(run_path) == []


@pytest.mark.long
def test_workers_do_not_outlive_a_parent_that_was_sigkilled(run_path: Path) -> None:
    process = _start(run_path, *SAME_KEY)
    until(lambda: _has(run_path, ENTRIES))
    children = _descendants(process)
    process.kill()
    process.communicate(timeout=60)
    assert _all_gone(children)

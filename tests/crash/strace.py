# SPDX-License-Identifier: Apache-2.0
"""Running a Python program under strace, which kills it or answers for the kernel at a chosen system call."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@functools.cache
def _why_not() -> str | None:
    if shutil.which("strace") is None:
        return "needs strace"
    # In containers ptrace is often forbidden.
    tried = subprocess.run(
        ["strace", "-o", os.devnull, "-e", "inject=getpid:retval=7", "true"], check=False, capture_output=True
    )
    return f"strace cannot trace here: {tried.stderr.decode().strip()}" if tried.returncode else None


def _run(options: list[str], program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    reason = _why_not()
    if reason is not None:
        pytest.skip(reason)
    # Not with --seccomp-bpf, with which strace 6.1 loses signals that it has to inject.
    command = ["strace", "-f", *options, sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def run_traced(program: str, *arguments: str | Path, inject: str, paths: tuple[str, ...] = ()) -> int:
    """Returns the exit status of ``program`` (negative: its signal) under ``inject``, an expression of strace.

    With ``paths``, only calls on exactly these paths count.
    """
    call = inject.split(":", maxsplit=1)[0]
    options = ["-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={inject}"]
    for path in paths:
        options += ["-P", path]
    done = _run(options, program, *arguments)
    assert done.returncode <= 0, done.stderr
    return done.returncode


def trace(program: str, *arguments: str | Path, log: Path) -> list[str]:
    """Returns the system calls of ``program``, one a line, without signals and exits."""
    done = _run(["-o", str(log), "-qq", "-e", "signal=none"], program, *arguments)
    assert done.returncode == 0, done.stderr
    return [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()]

# SPDX-License-Identifier: Apache-2.0
"""System calls of a hit, a miss and a put, counted by strace in a process of its own. Reported, not judged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line, shown
from lockcache_stress.bench.peers import CUDA_CORE

_CALLS = 50
_KINDS = ("hit", "miss", "put")

# A system call that no other code makes marks where a count begins and ends.
_PROGRAM = """
import os, sys
from {module} import FileStreamProgramCache
cache, value = FileStreamProgramCache(sys.argv[1]), os.urandom({size})
for number in range(8):
    cache[b"warm-%d" % number] = value
    cache.get(b"warm-%d" % number); cache.get(b"cold-%d" % number)
actions = dict(
    hit=lambda number: cache.get(b"warm-%d" % (number % 8)),
    miss=lambda number: cache.get(b"none-%d" % number),
    put=lambda number: cache.__setitem__(b"new-%d" % number, value),
)
for name, action in actions.items():
    for number in range(8):
        action(-1 - number)
    os.access("/lockcache-stress-begin-" + name, os.F_OK)
    for number in range({calls}):
        action(number)
    os.access("/lockcache-stress-end-" + name, os.F_OK)
"""


def measure(bench: Bench) -> list[Line]:
    """Count system calls. Returns a line for each operation, or one that says that strace is missing."""
    strace = shutil.which("strace")
    if strace is None:
        return [Line("system calls", skipped="strace is not installed")]
    ours = _count(bench, strace, "lockcache", bench.lockcache_directory("syscalls"))
    theirs = _count(bench, strace, "cuda.core.utils", bench.directory("syscalls")) if CUDA_CORE.is_installed() else {}
    if not ours:
        return [Line("system calls", skipped="strace may not trace here")]
    return [_line(kind, ours[kind], theirs.get(kind)) for kind in _KINDS]


def _line(kind: str, ours: float, theirs: float | None) -> Line:
    return Line(
        f"system calls of a {kind}",
        f"{ours:.1f}",
        theirs=shown(theirs, "{:.1f}"),
        numbers={"ours": ours, "theirs": theirs},
    )


def _count(bench: Bench, strace: str, module: str, directory: str) -> dict[str, float]:
    log = os.path.join(bench.root, "strace.log")
    program = _PROGRAM.format(module=module, size=VALUE_BYTES, calls=_CALLS)
    command = [strace, "-o", log, "-s", "64", sys.executable, "-c", program, directory]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        return {}
    with open(log) as file:
        return _parse(file.read().splitlines())


def _parse(lines: list[str]) -> dict[str, float]:
    counts: dict[str, float] = {}
    for kind in _KINDS:
        begin = next(i for i, line in enumerate(lines) if f"/lockcache-stress-begin-{kind}" in line)
        end = next(i for i, line in enumerate(lines) if f"/lockcache-stress-end-{kind}" in line)
        counts[kind] = (end - begin - 1) / _CALLS
    return counts

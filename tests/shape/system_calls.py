# SPDX-License-Identifier: Apache-2.0
"""System calls of operations, counted with strace; nothing where there is no strace, or it may not trace."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

#: Of the interpreter, for memory.
_NOT_OURS = ("brk(", "mmap(", "munmap(", "madvise(", "mremap(")
_OPERATIONS = ("open a warm directory", "hit", "miss", "put, no cap", "put that replaces")
# A call that nothing else makes stands between two operations.
_PROGRAM = """
import os, sys
from hashlib import sha256
from lockcache import FileStreamProgramCache
with FileStreamProgramCache(sys.argv[1]) as cache:
    for number in range(40):
        cache[b"k%d" % number] = b"y" * 4000
    cache.get(b"k0")
    value, used = b"z" * 4000, sha256(b"k0").digest()[0]  # a shard whose folder and lock are there
    new = next(key for key in map(b"new%d".__mod__, range(10**6)) if sha256(key).digest()[0] == used)
    os.getppid()
    other = FileStreamProgramCache(sys.argv[1])
    for operation in (
        lambda: cache[b"k0"], lambda: cache.get(b"absent"), lambda: cache.__setitem__(new, value),
        lambda: cache.__setitem__(b"k1", value), lambda: None,
    ):
        os.getppid()
        operation()
"""


def count_system_calls() -> dict[str, int]:
    """Returns the system calls of each operation, by its name, on the file system of temporary files."""
    with tempfile.TemporaryDirectory() as root:
        log = Path(root) / "log"
        command = [
            "strace",
            "-o",
            str(log),
            "-qq",
            "-e",
            "signal=none",
            sys.executable,
            "-c",
            _PROGRAM,
            f"{root}/cache",
        ]
        if shutil.which("strace") is None or subprocess.run(command, check=False, capture_output=True).returncode:
            return {}
        lines = [line for line in log.read_text().splitlines() if not line.startswith(_NOT_OURS)]
    marks = [number for number, line in enumerate(lines) if line.startswith("getppid(")][-len(_OPERATIONS) - 1 :]
    counts = (end - start - 1 for start, end in pairwise(marks))
    return {f"{name}: system calls": count for name, count in zip(_OPERATIONS, counts, strict=True)}

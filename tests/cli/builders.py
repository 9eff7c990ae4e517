# SPDX-License-Identifier: Apache-2.0
"""Programs that build folders of a cache, for ``lockcache run --keep``: step by step, as the test says on stdin."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.cli.command import start

HANG_SECONDS = 60
CODE = b"code\0" * 1000

# Argument: the folder. Each line of stdin is one step, so that a test can stop it anywhere.
BUILDER = """
import os, signal, sys
root, name, how = sys.argv[1:4]
place = at = f"{root}/{name}"
if how == "moved":
    at = f"{root}/under-way"
def step(word):
    print(word, flush=True)
    if not sys.stdin.readline():
        sys.exit(3)
if os.path.exists(f"{place}/sub/run.so"):
    print("found", flush=True)
    sys.exit(0)
os.makedirs(f"{at}/sub", exist_ok=True)
with open(f"{at}/source.cu", "w") as file:
    file.write("source")
os.utime(f"{at}/source.cu", ns=(10**18, 10**18))
step("midway")
with open(f"{at}/sub/run.so", "wb") as file:
    file.write(b"code\\0" * 1000)
os.chmod(f"{at}/sub/run.so", 0o755)
if how == "moved":
    os.rename(at, place)
step("built")
"""


@contextlib.contextmanager
def building(cache: Path, node: Path, how: str, *words: str, name: str = "k1") -> Iterator[subprocess.Popen[str]]:
    """A builder under ``lockcache run --keep``, in the folder of a node. It waits at each step."""
    command = ["--dir", str(cache), *words, "--keep", "KERNELS/*/", "--"]
    process = start(*command, sys.executable, "-c", BUILDER, str(node), name, how, KERNELS=str(node))
    try:
        yield process
    finally:
        with process:
            process.kill()


def build(cache: Path, node: Path, how: str, *words: str, name: str = "k1") -> tuple[str, str, int]:
    """Run a builder to its end. Returns its last word, what was said, and the exit code."""
    with building(cache, node, how, *words, name=name) as process:
        out, err = process.communicate("\n\n", timeout=HANG_SECONDS)
    return out.split()[-1], err, process.returncode


def go_on(process: subprocess.Popen[str], word: str) -> None:
    """Wait until a builder is at a step, and let it go on."""
    assert process.stdout.readline() == f"{word}\n"
    process.stdin.write("\n")
    process.stdin.flush()


def is_built(folder: Path) -> bool:
    """Returns whether a folder is what a builder makes, with modes and times."""
    so, source = folder / "sub" / "run.so", folder / "source.cu"
    return (
        so.read_bytes() == CODE
        and bool(so.stat().st_mode & 0o100)
        and source.read_text() == "source"
        and source.stat().st_mtime_ns == 10**18
        and sorted(os.listdir(folder)) == ["source.cu", "sub"]
    )

# SPDX-License-Identifier: Apache-2.0
"""Files that others cut off, or write over, while a process reads them: a miss, and no signal ends the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.filestream.disk import Layout
from tests.unit.bundle.bundles import bundle_of, write

# Reads once, waits for a line while the file is cut, and reads again: all that it read before and what it did not.
PROGRAM = """
import sys
from lockcache import BundleProgramCache, FileStreamProgramCache
kind, path, bundle = sys.argv[1:]
cache = BundleProgramCache(path) if kind == "bundle" else FileStreamProgramCache(path, seed=bundle)
assert cache["known"] == b"k" * 100_000
view = cache.view("known") if kind == "bundle" else cache["known"]
print("read", flush=True)
sys.stdin.readline()
assert bytes(view) == b"k" * 100_000
found = cache.get("known"), cache.get("new"), cache.get("absent"), len(cache), cache.get_entry("new")
assert found[:3] == (None, None, None), found
"""


@pytest.mark.slow
@pytest.mark.parametrize("left_bytes", [0, 1000, 5000])
@pytest.mark.parametrize("kind", ["bundle", "seed"])
def test_a_file_that_is_cut_while_a_process_reads_it_is_a_miss(tmp_path: Path, kind: str, left_bytes: int) -> None:
    bundle = write(tmp_path / "kernels.lcb", bundle_of({b"known": b"k" * 100_000, b"new": b"n" * 100_000}))
    path = bundle if kind == "bundle" else tmp_path / "cache"
    words = [sys.executable, "-c", PROGRAM, kind, str(path), str(bundle)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"read\n"
        read = bundle if kind == "bundle" else Path(Layout(str(path)).seed)
        with open(read, "r+b") as file:  # as cp and rsync --inplace write
            file.truncate(left_bytes)
        _, errors = process.communicate(b"\n", timeout=60)
    assert process.returncode == 0, errors

# SPDX-License-Identifier: Apache-2.0
"""Machines that lack what others have: no /proc (a bare chroot or sandbox), hardly any memory, impossible owners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache

WITHOUT_PROC = """
import ctypes, os, subprocess, sys
from lockcache import FileStreamProgramCache
if ctypes.CDLL(None).unshare(0x20000):  # CLONE_NEWNS
    sys.exit(77)
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "none", "/proc"], check=True)
assert os.listdir("/proc") == []
cache = FileStreamProgramCache(sys.argv[1], max_size_bytes=10**5)
assert cache[b"old"] == b"value"
for n in range(200):
    cache[b"%d" % n] = b"x" * 1000
    assert cache[b"%d" % n] == b"x" * 1000
stats = cache.stats()
assert (stats.dropped_writes, stats.entries <= 100, stats.evictions > 99) == (0, True, True), stats
assert cache.recount() == []
if os.fork() == 0:
    os.setxattr = lambda *_: os._exit(0)  # dies with a reservation
    cache[b"dead"] = b"x" * 1000
os.wait()
[repair] = cache.recount()
assert repair.drift_bytes == 1000
assert os.listdir(sys.argv[1] + "/tmp") == []
"""


@pytest.mark.root
def test_without_proc_everything_works(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)[b"old"] = b"value"
    command = [sys.executable, "-c", WITHOUT_PROC, str(cache_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        pytest.skip("mount namespaces are not allowed here")
    assert done.returncode == 0, done.stderr

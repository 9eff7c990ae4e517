"""Machines that lack what others have: no /proc (a bare chroot or sandbox), hardly any memory, impossible owners."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.owners import Owner, is_alive, myself

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


LITTLE_MEMORY = """
import os, resource, sys
from lockcache import FileStreamProgramCache
cache, path = FileStreamProgramCache(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
os.truncate(path, 1 << 40)
assert cache.get(b"key") in (None, b"value")
if len(sys.argv) > 3:
    os.removexattr(path, "user.lockcache")
    assert cache.get(b"key") is None
    cache[b"key"] = b"value"
    blob = bytearray(os.getxattr(path, "user.lockcache"))
    blob[11] ^= 0x80
    os.setxattr(path, "user.lockcache", bytes(blob))
    assert cache.get(b"key") is None
cache[b"key"] = b"value"
assert cache.get(b"key") == b"value"
assert cache.stats().corrupt_entries >= 0
"""


@pytest.mark.parametrize("record_files", [False, True], ids=["attributes", "record files"])
def test_an_entry_that_claims_more_than_there_is_memory_is_a_miss(cache_path: Path, record_files: bool) -> None:
    FileStreamProgramCache(cache_path, record_files=record_files)[b"key"] = b"value"
    name = hashlib.sha256(b"key").hexdigest()
    arguments = [str(cache_path), str(cache_path / "entries" / name[:2] / name[2:]), *([] if record_files else ["x"])]
    subprocess.run([sys.executable, "-c", LITTLE_MEMORY, *arguments], check=True, timeout=60)


@pytest.mark.parametrize("pid", [0, 2**31, 10**10 - 1], ids=["a group", "no int", "ten digits"])
def test_an_owner_that_no_process_can_be_is_dead(pid: int) -> None:
    assert is_alive(Owner(myself().host, pid, 1)) is False
    assert is_alive(Owner(myself().host, os.getppid(), 0)) is True, "of an unknown start, so the pid must do"

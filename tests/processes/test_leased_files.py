# SPDX-License-Identifier: Apache-2.0
"""Files that another process has a lease of the kernel's on, as an NFS server has for each of its clients."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.lowlevel import entry_name

pytestmark = pytest.mark.timeout(60)

#: Holds a lease on the file that it is given, and gives it up when somebody opens the file for writing.
_LEASED = f"""
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO, signal.SIGTERM])
fcntl.fcntl(fd, {fcntl.F_SETLEASE}, {fcntl.F_RDLCK})
print("leased", flush=True)
{{meanwhile}}
signal.sigwait([signal.SIGIO])
fcntl.fcntl(fd, {fcntl.F_SETLEASE}, {fcntl.F_UNLCK})
print("given up", flush=True)
"""


def _lease(path: Path, meanwhile: str = "") -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _LEASED.format(meanwhile=meanwhile), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "leased\n"
    return holder


@pytest.mark.parametrize("file", ["state", "locks/{shard}"])
def test_a_file_under_a_lease_is_opened_once_its_holder_gave_it_up(cache_path: Path, file: str) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.get_or_compute(b"key", lambda: b"value")
    path = cache_path / "lockcache" / file.format(shard=entry_name(b"key")[:2])
    with _lease(path) as holder, FileStreamProgramCache(cache_path) as cache:
        cache[b"key"] = b"another"
        assert cache.get_or_compute(b"not there yet", lambda: b"computed") == b"computed"
        assert cache[b"key"] == b"another"
        assert cache.stats().dropped_writes == 0
        assert holder.stdout is not None
        assert holder.stdout.readline() == "given up\n"


def test_a_lease_that_is_not_given_up_costs_a_write_and_not_the_program(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"key"] = b"value"
    path = cache_path / "lockcache" / f"locks/{entry_name(b'key')[:2]}"
    with _lease(path, "signal.sigwait([signal.SIGTERM])") as holder, FileStreamProgramCache(cache_path) as cache:
        cache[b"key"] = b"another"
        assert cache.stats().dropped_writes == 1
        holder.terminate()

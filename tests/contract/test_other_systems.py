# SPDX-License-Identifier: Apache-2.0
"""Systems other than Linux, as far as they can be had here: modules and functions that they lack are taken away.

A fake: no other system runs these tests. It finds what is used while lockcache is imported, and by the back ends that
work everywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

USE = """
import sys, os
platform, path, *missing = sys.argv[1:]
for name in missing:
    if name.startswith("os."):
        vars(os).pop(name[3:], None)
    else:
        sys.modules[name] = None
import sqlite3, logging, threading, hashlib, tempfile, json, pickle, random, stat, shlex, urllib.parse  # as they are
sys.platform = platform

import lockcache
from lockcache import *
from lockcache import FileStreamProgramCache, __all__

for name in __all__:
    getattr(lockcache, name)
for cache in (
    InMemoryProgramCache(max_size_bytes=10_000),
    SQLiteProgramCache(os.path.join(path, "cache", "programs.sqlite3"), max_size_bytes=10_000),
    TieredProgramCache(InMemoryProgramCache(), SQLiteProgramCache(os.path.join(path, "tiered", "programs.sqlite3"))),
):
    with cache:
        cache["k"] = b"code"
        cache.put_entry("e", Entry(b"code", {"arch": "sm_90"}))
        assert cache["k"] == b"code" and cache.get_entry("e").metadata == {"arch": "sm_90"}
        assert cache.get_or_compute("new", lambda: b"compiled") == cache["new"] == b"compiled"
        del cache["k"]
        assert (cache.get("k"), len(cache)) == (None, 2)
        cache.clear()
for make in (FileStreamProgramCache, lambda: BundleProgramCache(path, signing_key_file=False)):
    try:
        make()
    except OSError as error:
        print(error.strerror)
    else:
        raise SystemExit("it was made")
assert issubclass(FileStreamProgramCache, ProgramCacheResource)
assert not {"psutil", "filelock"} & set(sys.modules)
"""

_LINUX = (
    "fcntl grp pwd resource termios os.O_TMPFILE os.O_DIRECT os.O_NOATIME os.O_PATH os.setxattr os.getxattr "
    "os.listxattr os.removexattr os.pidfd_open os.memfd_create os.posix_fadvise os.copy_file_range os.sched_getaffinity"
)
_POSIX = (
    "os.O_NOFOLLOW os.O_CLOEXEC os.O_NONBLOCK os.O_DIRECTORY os.geteuid os.getuid os.getgid os.getegid os.getgroups "
    "os.statvfs os.fstatvfs os.ST_RDONLY os.fork os.register_at_fork os.mkfifo os.pread os.pwrite os.preadv os.fchmod "
    "os.uname os.fchown os.chown"
)


@pytest.mark.slow
@pytest.mark.parametrize("platform, missing", [("darwin", _LINUX), ("win32", f"{_LINUX} {_POSIX}")])
def test_what_needs_no_linux_works_and_the_rest_says_what_is_missing(
    tmp_path: Path, platform: str, missing: str
) -> None:
    command = [sys.executable, "-c", USE, platform, str(tmp_path), *missing.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=dict(os.environ))
    assert ended.returncode == 0, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first == second
    assert first.startswith(
        "FileStreamProgramCache, BundleProgramCache and RemoteProgramCache need Linux (flock, extended attributes and "
        "/proc), "
        f"and this is {platform}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("program", ["lockcache.cli", "lockcache_daemon.cli"])
def test_the_programs_say_it_in_one_line(tmp_path: Path, program: str) -> None:
    start = f"import sys; sys.platform = 'darwin'; from {program} import main; main()"
    ended = subprocess.run([sys.executable, "-c", start, "--help"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "needs Linux" in ended.stderr

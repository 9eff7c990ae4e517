# SPDX-License-Identifier: Apache-2.0
"""Further fixtures of the tests of the operator's command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache_stress.trouble import why_no_fuse
from tests.cli.doctor import until


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may reach, unlike pytest's, which is root's alone."""
    with tempfile.TemporaryDirectory(prefix="lockcache-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def filled(cache_path: Path) -> Path:
    """A cache of 10 kB with two entries of 1,500 bytes together, of which the first has metadata."""
    with FileStreamProgramCache(cache_path, max_size_bytes=10_000) as cache:
        cache.put_entry("a", Entry(b"x" * 1000, {"kind": "cubin", "arch": "sm_90"}))
        cache["b"] = b"y" * 500
    return cache_path


@pytest.fixture
def mount_faulty(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a FUSE file system with the given faults: ``server`` is its module, ``backing`` the directory it shows."""
    servers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def mount(*faults: str, server: str = "faulty_disk.py", backing: Path | None = None) -> Path:
        if reason := why_no_fuse():
            pytest.skip(reason)
        shown, path = backing or tmp_path / f"backing{len(servers)}", tmp_path / f"faulty{len(servers)}"
        shown.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name(server), shown, path, *faults], stderr=subprocess.DEVNULL
        )
        servers.append((process, path))
        until(lambda: os.path.ismount(path) or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip("this machine lets nobody mount FUSE")
        return path

    yield mount
    for process, path in servers:
        process.kill()
        process.wait()
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)

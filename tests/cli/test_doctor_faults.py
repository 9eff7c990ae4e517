"""The doctor on file systems with one fault each: it notices that one and no other, and never hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.examining import DEGRADED, UNTESTED, UNUSABLE, examined, until, verdicts


@pytest.fixture
def mount_faulty(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a FUSE file system with the given faults."""
    servers: list[tuple[subprocess.Popen[bytes], Path]] = []

    def mount(*faults: str) -> Path:
        try:
            import mfusepy
        except OSError:
            pytest.skip("needs libfuse and fusermount (Debian: fuse3)")
        backing, path = tmp_path / f"backing{len(servers)}", tmp_path / f"faulty{len(servers)}"
        backing.mkdir(mode=0o700)
        path.mkdir(mode=0o700)
        server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("faulty_disk.py"), backing, path, *faults],
            stderr=subprocess.DEVNULL,
        )
        servers.append((server, path))
        assert mfusepy
        until(lambda: os.path.ismount(path) or server.poll() is not None)
        if server.poll() is not None:
            pytest.skip("this machine lets nobody mount FUSE")
        return path

    yield mount
    for server, path in servers:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


FAULTS = {
    "none": ({}, "passthrough"),
    "locks exclude nobody": ({"locks": DEGRADED}, "two processes hold the same exclusive lock"),
    "no attributes": ({"attributes": DEGRADED}, "none"),
    "times cannot be set": ({"times": DEGRADED, "clock": UNTESTED, "group": UNTESTED}, "cannot be set"),
    "times in steps of two seconds": ({"times": DEGRADED}, "steps of 2 s"),
    "everybody may write": ({"writing": UNUSABLE, "safety": UNUSABLE, "a real cache": UNUSABLE}, "lets others write"),
    "clock an hour ahead": ({"clock": DEGRADED}, "+3600"),
    "rename copies": ({"rename": DEGRADED, "a real cache": UNUSABLE}, "who had the old file open read"),
    "fsync fails": ({"fsync": DEGRADED, "a real cache": UNUSABLE}, "Input/output error"),
    "everybody may read": ({"writing": DEGRADED}, "0755"),
    "locks stay taken": ({"locks": DEGRADED}, "was released stays taken"),
    "locks outlive their holder": ({"locks": DEGRADED}, "killed process is not free after 2 s"),
    "others see the file that was replaced": ({"rename": UNUSABLE}, "another process read"),
    "creation excludes nobody": ({"exclusive creation": DEGRADED}, "200 of 200 files were made by both"),
    "EPERM for a name that is there": ({"exclusive creation": DEGRADED}, "EPERM instead of EEXIST"),
    "new names stay missing": ({"new names": DEGRADED}, "missing for more than 2 s"),
    "only the owner sets times": ({"group": DEGRADED}, "Operation not permitted"),
    "times of others do not stick": ({"group": DEGRADED}, "without effect"),
    "files cannot be given away": ({"group": UNTESTED}, "cannot be made here"),
}


@pytest.mark.root
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_file_system_is_noticed_and_no_other(fault: str, mount_faulty: Callable[..., Path]) -> None:
    expected, said = FAULTS[fault]
    path = mount_faulty(fault)
    code, checks = examined(path)
    assert verdicts(checks) == expected, {name: checks[name]["found"] for name in verdicts(checks)}
    assert code == (2 if UNUSABLE in expected.values() else 1 if DEGRADED in expected.values() else 0)
    assert said in checks[next(iter(expected), "file system")]["found"]
    assert checks["file system"]["measured"]["kind"] == "fuse"
    assert os.listdir(path) == []
    if fault in ("locks stay taken", "locks outlive their holder"):
        assert "dropped" in checks["locks"]["means"]
        assert "approximate" not in checks["locks"]["means"], "nobody gets in, rather than everybody"


@pytest.mark.root
def test_a_file_system_that_refuses_to_lock_is_unusable(mount_faulty: Callable[..., Path]) -> None:
    code, checks = examined(mount_faulty("locks refuse"))
    assert code == 2
    assert checks["locks"]["verdict"] == UNUSABLE
    assert checks["a real cache"]["verdict"] == UNUSABLE


@pytest.mark.root
@pytest.mark.timeout(100)
def test_a_dead_server_is_reported_and_nobody_waits_for_it(mount_faulty: Callable[..., Path]) -> None:
    code, checks = examined(mount_faulty("hangs"), "--timeout", "1s")
    assert code == 2
    hanging = [check for check in checks.values() if "the file system hangs" in check["found"]]
    assert len(hanging) == 2
    assert all(check["verdict"] == UNUSABLE for check in hanging)

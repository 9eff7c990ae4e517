# SPDX-License-Identifier: Apache-2.0
"""The mount that a path is on, where several are stacked, whether it is a network file system, how long answers hold.

Most tables of mounts are made up: a network file system cannot be mounted here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lockcache.filestream.disk import locks, mounts
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.disk.mounts import Mount, is_network, mount_of


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Has these (kind, point) be mounted, in this order."""

    def mount(*pairs: tuple[str, str]) -> None:
        table = tmp_path / "mounts"
        table.write_text("".join(f"x {point.replace(' ', chr(92) + '040')} {kind} rw 0 0\n" for kind, point in pairs))
        monkeypatch.setattr(mounts, "_TABLE", str(table))

    return mount


@pytest.mark.parametrize(
    "stack, kind, network",
    [
        (["autofs", "nfs4"], "nfs4", True),
        (["nfs4", "tmpfs"], "tmpfs", False),
        (["ext4"], "ext4", False),
        (["fuseblk"], "fuseblk", False),
        (["fuse.sshfs"], "fuse.sshfs", True),
    ],
)
def test_of_several_mounts_at_one_point_the_last_counts(
    mounted: Callable[..., None], tmp_path: Path, stack: list[str], kind: str, network: bool
) -> None:
    point = str(tmp_path)
    mounted(("ext4", "/"), *((each, point) for each in stack), ("nfs", f"{point}-beside"))
    mount = mount_of(f"{point}/below")
    assert mount is not None
    assert (mount.kind, mount.point) == (kind, point)
    assert is_network(f"{point}/below") is network


def test_a_folder_that_is_on_no_server_is_looked_up_once_until_another_one_is_in_its_place(
    mounted: Callable[..., None],
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        path = f"{root}/a cache"  # the table has an escape in place of the blank
        os.mkdir(path)
        mounted(("ext4", "/"), ("nfs4", path))
        assert is_network(path), "what a server has is not kept"
        mounted(("ext4", "/"), ("tmpfs", path))
        assert not is_network(path)
        mounted(("ext4", "/"), ("nfs4", path))
        assert not is_network(path), "the table is not read again"
        os.rename(path, f"{path}-before")
        os.mkdir(path)
        assert is_network(path)


def test_an_option_of_a_mount_is_found_with_and_without_a_value() -> None:
    mount = Mount("nfs4", "server:/", "/", "rw,vers=4.2,nolock")
    assert [mount.has(name) for name in ("vers", "nolock", "4.2", "lock")] == [True, True, False, False]
    assert mount.has("local_lock", "nolock")


def test_where_the_table_cannot_be_read_nothing_is_a_network_file_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mounts, "_TABLE", str(tmp_path))
    assert mount_of("/") is None
    assert not is_network("/")


def test_without_a_table_of_the_kernel_psutil_tells_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mounts, "_TABLE", str(tmp_path / "none"))
    by_psutil = mount_of("/proc")
    monkeypatch.undo()
    assert by_psutil is not None
    assert mount_of("/proc") == by_psutil


def test_every_mount_of_this_machine_is_told_as_psutil_tells_it() -> None:
    theirs = [(part.fstype, part.device, part.mountpoint, part.opts) for part in psutil.disk_partitions(all=True)]
    assert [tuple(mount) for mount in mounts._mounts()] == theirs


def test_on_a_network_file_system_a_vanished_lock_file_is_noticed_after_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs4")
    path, now = str(tmp_path / "lock"), [100.0]
    looks: list[float] = []

    def look(fd: int) -> os.stat_result:
        looks.append(now[0])
        now[0] += 0.5  # until the answer is here
        return os.fstat(fd)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(locks, "_fstat", look)
    lock = ProcessLock(path, 0.0, layout=Layout(os.path.dirname(path)))
    for now[0] in (100.0, 100.9, 101.0, 101.9, 102.0):
        with lock:
            pass
    assert looks == [101.0, 102.0], "not within a second after it was opened, nor after the question"
    os.unlink(path)
    newcomer = ProcessLock(path, 0.0)
    now[0] = 103.0
    with lock:
        assert not newcomer.try_acquire()
        assert not lock.is_lost()

"""Which mount a path is on, where several are stacked, and whether it is a network file system.

The table of mounts is made up: a network file system cannot be mounted here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lockcache.filestream.disk.mounts import is_network, mount_of


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has these (kind, point) be mounted, in this order."""

    def mount(*pairs: tuple[str, str]) -> None:
        table = [SimpleNamespace(fstype=kind, device="x", mountpoint=point, opts="rw") for kind, point in pairs]
        monkeypatch.setattr(psutil, "disk_partitions", lambda **_: table)

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


def test_where_the_table_cannot_be_read_nothing_is_a_network_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(all: bool) -> None:  # noqa: A002 - psutil's name
        raise PermissionError

    monkeypatch.setattr(psutil, "disk_partitions", refuse)
    assert mount_of("/") is None
    assert not is_network("/")

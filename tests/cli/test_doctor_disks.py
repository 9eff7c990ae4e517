# SPDX-License-Identifier: Apache-2.0
"""The doctor on real file systems: it tells each for what it is, full ones and read-only ones too."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.doctor.probe_dir import PREFIX
from tests.cli.command import run
from tests.cli.doctor import DEGRADED, GOOD, NOTE, UNUSABLE, examined, verdicts

# What a good cache on each is found to lack, and what is said of the file system itself.
FILE_SYSTEMS: dict[str, tuple[tuple[Any, ...], dict[str, str]]] = {
    "ext4": (("ext4", 64, "-b", "4096"), {}),
    "xfs": (("xfs", 320), {}),
    "btrfs": (("btrfs", 128), {}),
    "ext4 of 1 KiB blocks": (("ext4", 64, "-b", "1024"), {"attributes": DEGRADED}),
    "ext4 of small inodes": (
        ("ext4", 64, "-b", "1024", "-I", "128", "-O", "^metadata_csum"),
        {"attributes": DEGRADED, "times": DEGRADED},
    ),
}


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_disks_are_found_to_be_what_they_are(kind: str, mount_image: Callable[..., Path]) -> None:
    options, lacks = FILE_SYSTEMS[kind]
    disk = mount_image(*options)
    code, checks = examined(disk)
    assert verdicts(checks) == lacks
    assert code == (1 if lacks else 0)
    assert checks["file system"]["measured"]["kind"] == options[0]
    assert checks["file system"]["measured"]["mount_point"] == str(disk)
    if kind == "ext4 of 1 KiB blocks":
        assert 44 <= checks["attributes"]["measured"]["largest_bytes"] < 1024
    if kind == "ext4 of small inodes":
        assert checks["times"]["measured"]["tick_ns"] == 10**9


@pytest.mark.root
@pytest.mark.parametrize("options, verdict", [("umask=077", DEGRADED), ("umask=0", UNUSABLE), ("umask=022", DEGRADED)])
def test_fat_lacks_nearly_everything(options: str, verdict: str, tmp_path: Path) -> None:
    if shutil.which("mkfs.vfat") is None:
        pytest.skip("needs mkfs.vfat")
    image, disk = tmp_path / "fat.img", tmp_path / "fat"
    disk.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.vfat", str(image)], capture_output=True, check=True)
    mounted = subprocess.run(["mount", "-o", f"loop,{options}", image, disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("needs vfat in the kernel")
    try:
        code, checks = examined(disk)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    found = verdicts(checks)
    assert found["file system"] == found["attributes"] == found["times"] == DEGRADED
    assert checks["attributes"]["measured"]["largest_bytes"] == 0
    assert checks["times"]["measured"]["tick_ns"] == 2 * 10**9
    assert found.get("writing", GOOD) == {"umask=077": GOOD, "umask=0": UNUSABLE, "umask=022": DEGRADED}[options]
    assert code == (2 if verdict == UNUSABLE else 1)


@pytest.mark.long
@pytest.mark.root
def test_tmpfs_and_overlay_are_good_and_their_nature_is_noted(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=64m")
    code, checks = examined(disk)
    assert (code, checks["file system"]["verdict"]) == (0, NOTE)
    for name in ("lower", "upper", "work", "merged"):
        (disk / name).mkdir(mode=0o700)
    layers = f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, disk / "merged"], check=True)
    try:
        code, checks = examined(disk / "merged")
    finally:
        subprocess.run(["umount", "-l", disk / "merged"], check=True)
    assert code == 0
    assert checks["file system"]["measured"]["kind"] == "overlay"
    assert "container" in checks["file system"]["means"]


@pytest.mark.root
def test_a_file_system_without_attributes_and_without_a_size_is_noticed(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=0700", "lockcache-test", tmp_path], check=True)
    try:
        code, checks = examined(tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert (code, verdicts(checks)) == (1, {"attributes": DEGRADED})
    assert checks["attributes"]["measured"]["largest_bytes"] == 0
    assert checks["room"]["verdict"] == NOTE


@pytest.mark.long
@pytest.mark.root
def test_a_cap_that_the_disk_cannot_hold_is_degraded(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=32m,nr_inodes=4000")
    FileStreamProgramCache(disk / "cache", max_size_bytes=10**9).close()
    code, checks = examined(disk / "cache")
    assert (code, verdicts(checks)) == (1, {"room": DEGRADED})
    assert "lower the cap" in checks["room"]["advice"]
    run("policy", "set", "--max-size", "20M", disk / "cache")
    assert examined(disk / "cache")[0] == 0
    with FileStreamProgramCache(disk / "cache") as cache:
        for number in range(200):
            cache[b"%d" % number] = bytes(100)
    code, checks = examined(disk / "cache")
    assert (code, verdicts(checks)) == (1, {"room": DEGRADED}), "200,000 entries of 100 bytes, and 3,500 inodes"
    assert "inodes" in checks["room"]["means"]


@pytest.mark.root
def test_a_full_disk_is_degraded_and_not_an_error(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=2m")
    FileStreamProgramCache(disk / "cache").close()
    with contextlib.suppress(OSError), open(disk / "filler", "wb") as file:
        while True:
            file.write(bytes(4096))
    code, checks = examined(disk / "cache")
    assert code in (1, 2)
    assert checks["room"]["verdict"] == DEGRADED
    assert not [name for name in os.listdir(disk / "cache/lockcache") if name.startswith(PREFIX)]


@pytest.mark.root
def test_a_read_only_cache_is_diagnosed(mount_tmpfs: Callable[..., Path]) -> None:
    disk = mount_tmpfs("size=64m")
    FileStreamProgramCache(disk / "cache").close()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    code, checks = examined(disk / "cache")
    assert (code, checks["writing"]["verdict"]) == (1, DEGRADED)
    assert "can be read" in checks["writing"]["means"]
    assert "nothing can be written here" in checks["the rest"]["found"]
    code, checks = examined(disk / "another")
    assert (code, checks["writing"]["verdict"]) == (2, UNUSABLE), "nothing to read, and nothing can be made"

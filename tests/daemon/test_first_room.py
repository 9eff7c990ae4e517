# SPDX-License-Identifier: Apache-2.0
"""Disks without an inode or a block left: what frees room needs none, for every layout and every program."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.cli import main
from tests.daemon.daemon_process import RunningDaemon, run_daemon
from tests.daemon.directory_kinds import KINDS, bytes_of
from tests.programs import run_forked

pytestmark = [pytest.mark.root, pytest.mark.slow]

# Of 10 kB each, and with a lock for each shard 1,600 inodes at most.
ENTRIES = 150
DISKS = {
    "inodes": lambda tmpfs, image: tmpfs("size=64m,nr_inodes=4000"),
    "blocks": lambda tmpfs, image: tmpfs("size=6m"),
    "blocks of ext4": lambda tmpfs, image: image("ext4", 8, "-b", "4096", "-m", "0", "-O", "^has_journal"),
}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, mount_tmpfs: Callable[..., Path], mount_image: Callable[..., Path]) -> Path:
    mounted: Path = DISKS[request.param](mount_tmpfs, mount_image)
    return mounted


def fill_up(disk: Path) -> None:
    """Leave no block free, or no inode."""
    (disk / "others").mkdir()
    with open(disk / "others" / "ballast", "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        deque(map(file.write, iter(lambda: bytes(4096), None)), maxlen=0)
    if 0 < os.statvfs(disk).f_files < 5000:
        with pytest.raises(OSError, match="No space left"):
            deque(((disk / "others" / f"{number}").touch() for number in range(5000)), maxlen=0)


def share_free(disk: Path) -> float:
    status = os.statvfs(disk)
    return min(status.f_bavail / status.f_blocks, status.f_ffree / status.f_files if status.f_files else 1.0)


@pytest.mark.parametrize("name", KINDS)
def test_a_daemon_starts_on_a_full_disk_and_frees_room(name, disk):
    kind, root = KINDS[name], disk / "cache"
    kind.fill(root, range(ENTRIES))
    fill_up(disk)
    assert share_free(disk) < 0.001
    before = bytes_of(root)
    options = kind.options if name != "lockcache" else ()  # which needs no time to settle
    done = run_daemon("--once", "--min-free", "3%", *options, root)
    assert kind.layout in done.stdout, done.stderr
    assert share_free(disk) > 0.001
    assert bytes_of(root) < before


def test_a_disk_that_fills_up_while_nobody_keeps_the_directory_is_swept_at_a_tick(disk):
    kind, root = KINDS["lockcache"], disk / "cache"
    kind.fill(root, range(ENTRIES))
    with RunningDaemon("--min-free", "3%", root) as daemon:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        fill_up(disk)
        os.kill(daemon.process.pid, signal.SIGCONT)
        while share_free(disk) < 0.001:
            daemon.wait_for("sweep")


@pytest.mark.parametrize(
    "words", [("evict", "--yes", "--to", "500k"), ("policy", "set", "--max-size", "500k"), ("clear", "--yes")]
)
def test_commands_that_clean_up_need_no_room(words, disk):
    kind, root = KINDS["lockcache"], disk / "cache"
    kind.fill(root, range(ENTRIES))
    fill_up(disk)
    done = run_forked(main, "lockcache", *words, root)
    assert done.returncode == 0, done.stderr
    if words[0] != "policy":
        assert len(kind.names(root)) < ENTRIES
    assert "500" in run_forked(main, "lockcache", "policy", "get", root).stdout or words[0] != "policy"


def test_what_was_only_just_written_stays(mount_tmpfs):
    disk = mount_tmpfs("size=4m")
    kind, root = KINDS["triton"], disk / "cache"
    kind.fill(root, range(50))
    fill_up(disk)
    done = run_daemon("--once", "--min-free", "3%", root)
    assert "No space left" in done.stderr
    assert len(kind.names(root)) == 50

# SPDX-License-Identifier: Apache-2.0
"""A quota that is used up, real: what an operator does about it, and the daemon, find their room by removing first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.cli.program import run
from lockcache_daemon.command import run as run_daemon
from lockcache_stress.trouble import needs_mounts, quota

pytestmark = [pytest.mark.root, pytest.mark.slow]

_CAP = "2M"
_KEYS = [b"%d" % number for number in range(300)]


@pytest.fixture
def used_up(tmp_path: Path) -> Iterator[Path]:
    """A cache without a cap in a folder that may hold 8 MiB, and holds that. btrfs, whose quota binds root as well."""
    lacking = needs_mounts("mkfs.btrfs", "btrfs")
    if lacking:
        pytest.skip(lacking)
    place = tmp_path / "place"
    place.mkdir()
    with quota(str(place)):
        with FileStreamProgramCache(place / "cache") as cache:
            for key in _KEYS:
                cache[key] = os.urandom(20_000)
        _fill(place / "ballast")
        yield place / "cache"


def _write(path: Path, size: int) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(size))
            os.fsync(file.fileno())


def _fill(path: Path) -> None:
    """Write until the quota refuses a block, which is seen once what was written is on the disk."""
    for number, size in enumerate((1 << 18, 1 << 12, 1 << 12)):
        with pytest.raises(OSError, match="quota exceeded"):
            _write(path.with_name(f"{path.name}{number}"), size)


REMEDIES: dict[str, Callable[[str], int]] = {
    "evict": lambda root: run(["evict", "--to", "1M", "--yes", root]),
    "policy set": lambda root: run(["policy", "set", "--max-size", _CAP, root]),
    "clear": lambda root: run(["clear", "--yes", root]),
    "the daemon at its start": lambda root: run_daemon(["--once", "--max-size", _CAP, root]),
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_a_remedy_needs_no_room_of_its_own(used_up: Path, remedy: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(os.listdir(used_up / "entries")) > 100
    assert REMEDIES[remedy](str(used_up)) == 0, capfd.readouterr().err
    with FileStreamProgramCache(used_up) as cache:
        assert cache.stats().bytes <= 2 << 20
        cache[b"new"] = b"x" * 1000
        assert cache[b"new"] == b"x" * 1000
        # btrfs copies what is written, and may refuse to write the accounting of what is removed: never too little.
        assert all(repair.drift_bytes >= 0 for repair in cache.recount())

# SPDX-License-Identifier: Apache-2.0
"""Full disks, of blocks and of inodes: invariant 7 (never take the job down), and invariant 2 (last write wins)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.inspect import accounted
from tests.crash.measure import assert_accounting_is_not_too_low, assert_one_recount_repairs_all
from tests.processes.provable_values import Proof, prove, value_for
from tests.state_pages import damage

pytestmark = pytest.mark.root

DISKS = {
    "tmpfs": lambda tmpfs, image: tmpfs("size=8m"),
    "tmpfs without inodes": lambda tmpfs, image: tmpfs("size=64m,nr_inodes=700"),
    "ext4": lambda tmpfs, image: image("ext4", 8, "-b", "4096", "-m", "0", "-O", "^has_journal"),
    "ext4 of 1 KiB blocks": lambda tmpfs, image: image("ext4", 8, "-b", "1024", "-m", "0"),
    "ext4 of inodes too small for a record": lambda tmpfs, image: image(
        "ext4", 8, "-b", "1024", "-m", "0", "-I", "128", "-O", "^metadata_csum"
    ),
}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, mount_tmpfs: Callable[..., Path], mount_image: Callable[..., Path]) -> Path:
    """A small file system; each test fills it up."""
    mounted: Path = DISKS[request.param](mount_tmpfs, mount_image)
    return mounted


def _until_full(act: Callable[[int], object]) -> None:
    numbers = iter(range(10**6))
    with pytest.raises(OSError, match="No space left"):
        deque(map(act, numbers), maxlen=0)


def _fill_up(disk: Path) -> None:
    """Leave not a block free: somebody else's file, which no eviction can remove."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        for size in (1 << 16, 1024, 64, 1):
            _until_full(lambda _, size=size: file.write(bytes(size)))  # type: ignore[misc]
    if os.statvfs(disk).f_ffree < 5000:  # else blocks run out first
        _until_full(lambda number: (disk / f"ballast{number}").touch())


@pytest.mark.long
def test_an_uncapped_cache_that_fills_the_disk_evicts_and_goes_on(disk: Path) -> None:
    cache = FileStreamProgramCache(disk / "cache")
    last = {}
    keys, size = (200, 60_000) if os.statvfs(disk).f_files > 700 else (1000, 1000)
    for serial in range(3 * keys):
        key = b"%d" % (serial % keys)
        cache[key] = value_for(key, 1, serial, size)
        last[key] = Proof(1, serial)
    stats = cache.stats()
    assert stats.evictions + stats.dropped_writes > 0, "it was full"
    served = [key for key in last if (found := cache.get(key)) is not None and prove(key, found) == last[key]]
    assert all(cache.get(key) is None for key in last.keys() - set(served)), "never an older value"
    assert stats.puts > 2 * keys, "most writes find room by evicting"
    assert_accounting_is_not_too_low(disk / "cache")
    assert_one_recount_repairs_all(cache)


def test_on_a_disk_that_others_filled_a_dropped_write_takes_the_older_value_with_it(disk: Path) -> None:
    cache = FileStreamProgramCache(disk / "cache")
    for serial in range(4):
        cache[b"%d" % serial] = value_for(b"%d" % serial, 1, 0, 30_000)
    _fill_up(disk)
    for serial in range(4):
        cache[b"%d" % serial] = value_for(b"%d" % serial, 1, 1, 2_000_000)
    for serial in range(4):
        found = cache.get(b"%d" % serial)
        assert found is None or prove(b"%d" % serial, found) == (1, 1)
    assert cache.stats().dropped_writes > 0 or "inodes" in str(disk)
    assert cache.stats().corrupt_entries == 0
    assert_one_recount_repairs_all(cache)


def test_a_directory_on_a_full_disk_opens_and_serves_what_it_has(disk: Path) -> None:
    with FileStreamProgramCache(disk / "cache") as cache:
        cache[b"key"] = b"value"
    _fill_up(disk)
    cache = FileStreamProgramCache(disk / "cache", max_size_bytes=10**6)
    assert cache[b"key"] == b"value"


@pytest.mark.parametrize("free_blocks", [0, 1])
def test_a_page_that_is_damaged_is_made_again_on_a_full_disk_in_the_place_of_the_old_one(
    mount_tmpfs: Callable[..., Path], real_blocks: None, free_blocks: int
) -> None:
    disk = mount_tmpfs("size=8m")
    with FileStreamProgramCache(disk / "cache") as cache:
        cache["k"] = b"code"
    layout = Layout(str(disk / "cache"))
    damage(layout.root)
    _fill_up(disk)
    os.truncate(disk / "ballast", os.path.getsize(disk / "ballast") - free_blocks * os.statvfs(disk).f_frsize)
    with FileStreamProgramCache(disk / "cache") as cache:
        assert cache["k"] == b"code"
        assert cache.recount() == []
    assert os.listdir(layout.tmp) == []
    assert accounted(layout) is not None


_FILES = {"kernel.cubin": b"code" * 8000, "kernel.json": b"{}"}


def _shown(view: str | None) -> dict[str, bytes] | None:
    return None if view is None else {path.name: path.read_bytes() for path in Path(view).iterdir()}


def test_on_a_full_disk_there_is_no_view_and_the_entry_stays(disk: Path) -> None:
    cache = FileStreamProgramCache(disk / "cache")
    cache.put_files("k", _FILES)
    _fill_up(disk)
    assert cache.view_files("k") is None
    assert cache.get_files("k") == _FILES
    assert [*(disk / "cache/lockcache/views").glob("??/*")] == []
    assert_accounting_is_not_too_low(disk / "cache")
    assert_one_recount_repairs_all(cache)
    for ballast in disk.glob("ballast*"):
        ballast.unlink()
    assert _shown(cache.view_files("k")) == _FILES

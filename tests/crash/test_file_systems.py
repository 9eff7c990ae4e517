# SPDX-License-Identifier: Apache-2.0
"""Real file systems: what they do with attributes differs, what a cache on them promises does not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from tests.crash.damage import ATTRIBUTE_DAMAGES, DAMAGES, GROWTHS
from tests.crash.measure import assert_one_recount_repairs_all

pytestmark = pytest.mark.root

FILE_SYSTEMS: dict[str, tuple[Any, ...]] = {
    "tmpfs": (),
    "ext4 of 1 KiB blocks": ("ext4", 32, "-b", "1024"),
    "ext4 of 4 KiB blocks": ("ext4", 32, "-b", "4096"),
    "ext4 without attributes": ("ext4", 32, "-O", "^ext_attr"),
    "ext4 of small inodes": ("ext4", 32, "-b", "1024", "-I", "128", "-O", "^metadata_csum"),
    "ext2": ("ext2", 32),
    "xfs": ("xfs", 320),
    "btrfs": ("btrfs", 128),
}


@pytest.fixture(params=FILE_SYSTEMS)
def file_system(
    request: pytest.FixtureRequest, mount_tmpfs: Callable[..., Path], mount_image: Callable[..., Path]
) -> Path:
    """A mounted file system of its own."""
    kind, *options = FILE_SYSTEMS[request.param] or ("tmpfs",)
    if kind != "tmpfs":
        mounted: Path = mount_image(kind, *options)
        return mounted
    return mount_tmpfs("size=64m")


ENTRIES = {
    "empty": Entry(b""),
    "bare": Entry(b"x" * 1000),
    "with metadata": Entry(b"y" * 5000, {"symbols": {b"f": "_Z1fv"}, "compile_cost_ns": 12}),
    "with 300 bytes of metadata": Entry(b"z" * 5000, {"log": "l" * 300}),
    "with 3,000 bytes of metadata": Entry(b"z" * 5001, {"log": "l" * 3000}),
    "with 100,000 bytes of metadata": Entry(b"z" * 5002, {"log": "l" * 100_000}),
    "of a megabyte": Entry(os.urandom(1 << 20), {"n": 1}),
    # The largest names and strangest keys end in the same hash.
    "\0" + "k" * 10_000: Entry(b"long key"),
}


def _path(root: Path, key: str) -> Path:
    name = hashlib.sha256(key.encode()).hexdigest()
    return root / "entries" / name[:2] / name[2:]


def test_what_is_stored_comes_back_is_replaced_evicted_and_removed(file_system: Path) -> None:
    cache = FileStreamProgramCache(file_system / "cache", max_size_bytes=3 << 20)
    for _ in range(2):
        for key, entry in ENTRIES.items():
            cache.put_entry(key, entry)
        for key, entry in ENTRIES.items():
            assert cache.get_entry(key) == entry, key
    for number in range(100):
        cache[b"filler %d" % number] = bytes(40_000)
        assert cache.get("bare") == ENTRIES["bare"].code, "used all the time"
    assert cache.stats().evictions > 20
    assert cache.stats().dropped_writes == 0
    assert cache.stats().corrupt_entries == 0
    del cache["bare"]
    assert cache.get("bare") is None
    assert_one_recount_repairs_all(cache)
    cache.clear()
    assert len(cache) == 0
    assert_one_recount_repairs_all(cache)


@pytest.mark.parametrize("metadata", [{}, {"log": "l" * 6000}], ids=["bare", "with a tail"])
def test_damage_is_a_miss_and_the_next_write_mends_it(file_system: Path, metadata: dict[str, Any]) -> None:
    damages = dict(DAMAGES)
    cache = FileStreamProgramCache(file_system / "cache")
    entry, other = Entry(bytes(range(256)) * 8, metadata), Entry(b"other" * 300, metadata)
    cache.put_entry("other", other)
    cache.put_entry("key", entry)
    path = _path(file_system / "cache", "key")
    if _has_attribute(path):
        damages |= ATTRIBUTE_DAMAGES
    for name, damage in damages.items():
        try:
            damage(path)
        except OSError:
            continue  # no such thing here: vfat has no symlinks, ext4 of 1 KiB blocks no files of a terabyte
        allowed = (None, entry) if name in GROWTHS else (None,)
        assert cache.get_entry("key") in allowed, name
        if path.is_dir():
            path.rmdir()  # nobody's entry, and nobody's to remove
        cache.put_entry("key", entry)
        assert cache.get_entry("key") == entry, name
        assert cache.get_entry("other") == other, name
    assert cache.stats().corrupt_entries >= 6
    assert_one_recount_repairs_all(cache)


def _has_attribute(path: Path) -> bool:
    try:
        os.getxattr(path, "user.lockcache")
    except OSError:
        return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""A seed and the room for it: caps that are raised at the same opening, and disks that are too small."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.seeding import attaching
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.material import open_directory


def _bundle_of_bytes(path: Path, size_bytes: int) -> Path:
    return write(path, bundle_of({b"%d" % number: os.urandom(size_bytes // 10) for number in range(10)}))


def test_a_cap_that_is_raised_at_the_same_opening_evicts_nothing_by_the_older_one(
    cache_path: Path, tmp_path: Path
) -> None:
    bundle = _bundle_of_bytes(tmp_path / "large.lcb", 400_000)
    with FileStreamProgramCache(cache_path, max_size_bytes=1_000_000) as cache:
        cache.update({b"own %d" % number: os.urandom(100_000) for number in range(9)})
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=2_000_000) as cache:
        assert len(cache) == 10 + 9
        assert cache.stats().evictions == 0


def test_a_seed_that_goes_for_a_lower_cap_takes_no_entry_with_it(cache_path: Path, tmp_path: Path) -> None:
    bundle = _bundle_of_bytes(tmp_path / "large.lcb", 400_000)
    with FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=1_000_000) as cache:
        cache.update({b"own %d" % number: os.urandom(100_000) for number in range(5)})
    with FileStreamProgramCache(cache_path, max_size_bytes=600_000) as cache:
        assert len(cache) == 5
        assert cache.stats().evictions == 0


def test_a_cap_is_lowered_at_once_while_the_seed_that_it_is_too_small_for_is_being_replaced(
    cache_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that replaces it checks the cap; nobody waits for that process."""
    waits, real_lock = [], attaching.seed_lock

    def lock(directory: CacheDirectory, seconds: float) -> contextlib.AbstractContextManager[None]:
        waits.append(seconds)
        return real_lock(directory, seconds)

    bundle = _bundle_of_bytes(tmp_path / "large.lcb", 400_000)
    FileStreamProgramCache(cache_path, seed=bundle, max_size_bytes=1_000_000).close()
    directory = open_directory(cache_path)
    monkeypatch.setattr(attaching, "seed_lock", lock)
    monkeypatch.setattr(attaching, "_WAIT_FOR_NEWER_SECONDS", 0.05)
    with real_lock(directory, 0.0):
        directory.policy.replace_seed(replace(directory.policy.current().seed, version=""))
        with FileStreamProgramCache(cache_path, max_size_bytes=600_000) as cache:
            cache[b"own"] = b"code"
            assert cache[b"own"] == b"code"
    assert directory.policy.current().max_size_bytes == 600_000
    assert waits == [0.0, 0.05]  # the latter for what a program without a seed would read


@pytest.mark.root
def test_a_disk_that_is_too_small_for_the_copy_is_as_it_was(
    mount_tmpfs: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = _bundle_of_bytes(tmp_path / "large.lcb", 5_000_000)
    disk = mount_tmpfs("size=4m")
    path = disk / "cache"
    with FileStreamProgramCache(path) as cache:
        cache.update({b"own %d" % number: os.urandom(100_000) for number in range(5)})
    with FileStreamProgramCache(path, seed=bundle) as cache:
        assert "No space left on device" in caplog.text
        assert not os.path.lexists(f"{Layout(str(path)).seed}.new")
        assert cache._directory.policy.current().seed is None
        cache[b"more"] = os.urandom(1_000_000)
        assert (len(cache), cache.stats().evictions) == (6, 0)

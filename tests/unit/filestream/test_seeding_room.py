# SPDX-License-Identifier: Apache-2.0
"""A seed and the room for it: caps that are raised at the same opening, and disks that are too small."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import Layout
from tests.unit.bundle.bundles import bundle_of, write


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

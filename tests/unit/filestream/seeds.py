# SPDX-License-Identifier: Apache-2.0
"""A directory on a seed: the seed's entries, and steps that its tests share."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.eviction import evict_to_limit
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.material import open_directory

KEYS = [b"key %d" % number for number in range(20)]
OLDER = {key: b"older " + key for key in KEYS}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write(tmp_path / "kernels.lcb", bundle_of(OLDER))


@pytest.fixture
def seeded(cache_path: Path, bundle: Path) -> FileStreamProgramCache:
    return FileStreamProgramCache(cache_path, seed=bundle, lock_timeout_seconds=2)


def evict_all(cache: FileStreamProgramCache) -> None:
    assert evict_to_limit(open_directory(Path(cache.path)), 0).entries


def make_due(path: Path) -> None:
    """Set the time of the last freshness check back by a minute."""
    with contextlib.suppress(FileNotFoundError):  # there was no check
        os.utime(path / "lockcache/locks/seed", (0, 0))

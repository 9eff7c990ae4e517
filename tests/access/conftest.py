# SPDX-License-Identifier: Apache-2.0
"""Fixtures of these tests: a directory that a group shares, a file of keys, and caches that sign."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.access.group_members import ALICE, BOB, GROUP
from tests.access.keys import OLD, write_keys


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of Alice's that other users may pass through, unlike pytest's, which is root's alone."""
    path = Path(tempfile.mkdtemp(prefix="lockcache-test-"))
    os.chown(path, ALICE, ALICE)
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def shared(home: Path) -> Path:
    """A directory as an administrator makes it for a group: ``install -d -m 2770 -g GROUP``."""
    path = home / "shared"
    path.mkdir()
    os.chown(path, ALICE, GROUP)
    path.chmod(0o2770)
    return path


@pytest.fixture
def traps(home: Path) -> Path:
    """A folder of Bob's next to ``shared``, on the same file system."""
    path = home / "traps"
    path.mkdir(mode=0o700)
    os.chown(path, BOB, BOB)
    return path


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys", OLD)


@pytest.fixture(params=[False, True], ids=["attributes", "record-files"])
def signed(request, cache_path, key_file):
    """Opens caches with the keys of ``key_file``, or of another."""
    opened = []

    def open_cache(keys: object = key_file, **arguments):
        cache = FileStreamProgramCache(cache_path, record_files=request.param, signing_key_file=keys, **arguments)
        opened.append(cache)
        return cache

    yield open_cache
    for cache in opened:
        cache.close()

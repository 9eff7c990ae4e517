# SPDX-License-Identifier: Apache-2.0
"""Empty folders of shards: removed where they count, and never in the way of an eviction."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.filestream.disk import SPACES
from lockcache.filestream.eviction.remove import remove_empty_folders
from tests.unit.material import open_directory


@pytest.fixture
def shard_folder(cache_path: Path) -> Path:
    """A shard's folder without entries, in a directory whose folders count."""
    folder = cache_path / "entries" / "ab"
    folder.mkdir(parents=True, mode=0o700)
    (cache_path / "lockcache").mkdir(mode=0o700)
    cache_path.chmod(0o700)
    (cache_path / "entries").chmod(0o700)
    return folder


def _opened(cache_path: Path, *shards: int):
    directory = open_directory(cache_path)
    directory.layout.space = SPACES[True](1, 0, True)
    for shard in shards or (0xAB,):
        directory.usage().set_locked(shard, directory.usage().slot(shard)._replace(bytes=4096))
    return directory


def test_a_folder_without_entries_goes_and_no_other_shard_is_locked(cache_path: Path, shard_folder: Path) -> None:
    remove_empty_folders(_opened(cache_path))
    assert not shard_folder.exists()
    assert [name for name in os.listdir(cache_path / "lockcache" / "locks") if len(name) == 2] == ["ab"]


def test_a_folder_with_something_in_it_stays(cache_path: Path, shard_folder: Path) -> None:
    (shard_folder / ("0" * 62)).write_bytes(b"of a program that does not account")
    remove_empty_folders(_opened(cache_path))
    assert os.listdir(shard_folder)


def test_a_lock_file_that_cannot_be_made_is_a_busy_shard_and_the_next_one_goes(
    cache_path: Path, shard_folder: Path
) -> None:
    another = shard_folder.with_name("cd")
    another.mkdir(mode=0o700)
    directory = _opened(cache_path, 0xAB, 0xCD)
    (cache_path / "lockcache" / "locks" / "ab").mkdir()
    remove_empty_folders(directory)
    assert (shard_folder.exists(), another.exists()) == (True, False)

# SPDX-License-Identifier: Apache-2.0
"""Space: what files count for, and how long they may be for that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.filestream.disk import Mount, Space
from lockcache.filestream.disk.space import BlockSpace
from tests.programs import SPACE_ON


@pytest.mark.parametrize("space", [Space(1), Space(4096), Space(4096, 512), Space(512, 512)])
@pytest.mark.parametrize("taken", [5000, 8191, 8192, 8193, 9000, 10**9 + 7])
def test_the_largest_file_of_a_size_on_disk_is_the_largest(space: Space, taken: int) -> None:
    largest = space.largest_file_bytes(taken)
    assert space.of_bytes(largest) <= taken < space.of_bytes(largest + 1)


@pytest.mark.parametrize(
    "kind, space",
    [
        ("ext4", BlockSpace(2048, 0, True)),
        ("xfs", BlockSpace(2048, 512, True)),
        ("btrfs", Space(2048, 0, False)),
        ("", Space(2048, 0, False)),
        ("nfs4", Space(4096, 0, False)),
    ],
)
def test_sizes_go_by_the_kind_of_file_system(kind: str, space: Space, tmp_path: Path) -> None:
    found = SPACE_ON(Mount(kind, "device", "/", "rw") if kind else None, 2048)
    assert (type(found), found) == (type(space), space)
    taken = os.stat(tmp_path).st_blocks * 512 if found.shows_blocks else 0
    assert found.of_folder(os.stat(tmp_path)) == taken


def test_folders_of_a_shard_count_as_far_as_they_are_there_and_views_with_an_inode(tmp_path: Path) -> None:
    space, folders = BlockSpace(4096, 512), [str(tmp_path / name) for name in ("entries", "records", "views")]
    assert space.of_shard_folders(folders) == 0
    taken = 0
    for number, folder in enumerate(folders):
        os.mkdir(folder)
        taken += os.lstat(folder).st_blocks * 512 + 512 * (number == 2)
        assert space.of_shard_folders(folders) == taken
    os.rmdir(folders[0])  # evictions remove it when it is empty
    assert space.of_shard_folders(folders) == taken - os.lstat(folders[1]).st_blocks * 512
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    assert space.of_shard_folders([str(tmp_path / "file")]) == 0

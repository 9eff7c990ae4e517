# SPDX-License-Identifier: Apache-2.0
"""Space: what files count for, and how long they may be for that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache.filestream.disk import Space
from lockcache.filestream.disk.space import BlockSpace


@pytest.mark.parametrize("space", [Space(1), Space(4096), Space(4096, 512), Space(512, 512)])
@pytest.mark.parametrize("taken", [5000, 8191, 8192, 8193, 9000, 10**9 + 7])
def test_the_largest_file_of_a_size_on_disk_is_the_largest(space: Space, taken: int) -> None:
    largest = space.largest_file_bytes(taken)
    assert space.of_bytes(largest) <= taken < space.of_bytes(largest + 1)


def test_folders_of_a_shard_count_as_far_as_they_are_there_and_views_with_an_inode(tmp_path: Path) -> None:
    space, folders = BlockSpace(4096, 512), [str(tmp_path / name) for name in ("entries", "records", "views")]
    assert space.of_shard_folders(folders) == 0
    taken = 0
    for number, folder in enumerate(folders):
        os.mkdir(folder)
        taken += os.lstat(folder).st_blocks * 512 + 512 * (number == 2)
        assert space.of_shard_folders(folders) == taken
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    assert space.of_shard_folders([str(tmp_path / "file")]) == 0

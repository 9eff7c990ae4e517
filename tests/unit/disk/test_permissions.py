# SPDX-License-Identifier: Apache-2.0
"""Folders that are refused, shared, or named to the user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lockcache import UnsafeCacheDirError
from lockcache.filestream.disk import Layout
from lockcache.filestream.disk.permissions import PRIVATE, Sharing, check_folders, make_root, nearest_seen


@pytest.mark.parametrize("root_mode, is_refused", [(0o700, False), (0o711, True)])
def test_a_shard_that_others_may_write_is_refused_where_they_can_reach_it(
    cache_path: Path, root_mode: int, is_refused: bool
) -> None:
    layout = Layout(str(cache_path))
    for path in (*layout.directories(), layout.entry_shard(7)):
        os.mkdir(path, 0o700)
    os.chmod(layout.entry_shard(7), 0o777)
    os.chmod(layout.root, root_mode)
    if is_refused:
        with pytest.raises(UnsafeCacheDirError, match="/07"):
            check_folders(layout, PRIVATE)
    else:
        assert check_folders(layout, PRIVATE) == []


@pytest.mark.parametrize("is_empty", [True, False])
def test_only_an_empty_folder_becomes_its_groups(tmp_path: Path, is_empty: bool) -> None:
    root = tmp_path / "root"
    root.mkdir(0o700)
    if not is_empty:
        (root / "file").touch()
    make_root(str(root), Sharing(True, os.getegid()))
    assert stat.S_IMODE(root.stat().st_mode) == (0o2770 if is_empty else 0o700)


def test_what_can_be_seen_of_a_path_is_the_last_folder_on_it_that_is_there(tmp_path: Path) -> None:
    there = str(tmp_path)
    assert [nearest_seen(f"{there}{below}") for below in ("", "/none", "/none/below")] == [there] * 3

# SPDX-License-Identifier: Apache-2.0
"""A folder that is swapped for a symlink for a moment: no count takes it for an empty one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import entry_name
from tests.verifying import verify_shard


@pytest.mark.parametrize(
    "folder",
    ["entries/??", "entries", "tmp", "lockcache/records/??", "lockcache/records", "lockcache/quarantine"],
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_recount_passes_over_a_shard_while_a_symlink_stands_for_its_folder(
    cache_path: Path, folder: str, is_shared: bool
) -> None:
    cache_path.mkdir(mode=0o700)
    if is_shared:
        cache_path.chmod(0o2770)
    with FileStreamProgramCache(cache_path, group=is_shared, max_size_bytes=2_000_000) as cache:
        for number in range(20):
            cache.put_entry(b"%d" % number, Entry(os.urandom(20_000), {"source": "x" * 20_000}))
        name = entry_name(b"0")
        with (cache_path / "entries" / name[:2] / name[2:]).open("r+b") as file:
            file.write(b"damaged")
        [*_] = verify_shard(CacheDirectory(str(cache_path), 5.0, group=is_shared), int(name[:2], 16), repair=True)
        assert os.listdir(cache_path / "lockcache/quarantine") != []
        assert cache.recount() == []
        held = cache.stats().bytes
        swapped = [*cache_path.glob(folder)]
        assert swapped != []
        for path in swapped:
            path.rename(path.with_name(f".{path.name}"))
            path.symlink_to("/nowhere")
        assert cache.recount() == []
        for path in swapped:
            path.unlink()
            path.with_name(f".{path.name}").rename(path)
        assert (cache.stats().bytes, cache.recount()) == (held, [])

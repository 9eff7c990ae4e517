"""A folder that is swapped for a symlink for a moment: no count takes it for an empty one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache


@pytest.mark.parametrize("folder", ["entries/SHARD", "entries", "tmp"])
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_recount_passes_over_a_shard_while_a_symlink_stands_for_its_folder(
    cache_path: Path, folder: str, is_shared: bool
) -> None:
    cache_path.mkdir(mode=0o700)
    if is_shared:
        cache_path.chmod(0o2770)
    with FileStreamProgramCache(cache_path, group=is_shared, max_size_bytes=2_000_000) as cache:
        for number in range(20):
            cache[b"%d" % number] = os.urandom(20_000)
        held = cache.stats().bytes
        shards = [path.name for path in (cache_path / "entries").iterdir()]
        swapped = {cache_path / folder.replace("SHARD", shard) for shard in shards}
        for path in swapped:
            path.rename(path.with_name(f".{path.name}"))
            path.symlink_to("/nowhere")
        assert cache.recount() == []
        for path in swapped:
            path.unlink()
            path.with_name(f".{path.name}").rename(path)
        assert (cache.stats().bytes, cache.recount()) == (held, [])

"""Two caches over two FUSE mounts of one directory, whose open files show and keep what FUSE file systems let them."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.lowlevel import entry_name

#: Keys of one shard, which both write to in turn.
KEYS = list(islice((f"{number}" for number in count() if entry_name(b"%d" % number).startswith("00")), 6))


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["pages are remembered", "open files are remembered", "direct writes are whole blocks"]
)
def test_two_clients_account_for_what_either_stored_whatever_an_open_file_shows(
    fault: str, mount_faulty: Callable[..., Path], tmp_path: Path
) -> None:
    mounts = [mount_faulty(fault, server="faulty_client.py", backing=tmp_path / "server") for _ in range(2)]
    with FileStreamProgramCache(mounts[0]) as first, FileStreamProgramCache(mounts[1]) as second:
        for number, key in enumerate(KEYS):
            (first, second)[number % 2][key] = os.urandom(5000)
        for cache in (first, second):
            assert (cache.stats().dropped_writes, len(cache)) == (0, len(KEYS))
        assert first.stats().bytes == second.stats().bytes >= 5000 * len(KEYS)
        assert first.recount() == [], "no shard is counted wrongly"

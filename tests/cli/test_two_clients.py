# SPDX-License-Identifier: Apache-2.0
"""Two caches over two FUSE mounts of one directory, whose open files show and keep what FUSE file systems let them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.pages import FirstCount
from lockcache.lowlevel import entry_name
from tests.daemon.daemon_process import until

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


@pytest.mark.root
@pytest.mark.slow
def test_two_clients_that_make_a_directory_at_once_have_one_page(
    mount_faulty: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FirstCount] = []
    make = FirstCount.replace_page_locked

    def note_and_make(count: FirstCount, *policy: Any) -> None:
        made.append(count)
        make(count, *policy)

    monkeypatch.setattr(FirstCount, "replace_page_locked", note_and_make)
    names = "missing names are remembered"
    mounts = [mount_faulty(names, server="faulty_client.py", backing=tmp_path / "server") for _ in range(2)]
    locks = {str(path / "lockcache" / "locks" / "directory") for path in mounts}
    lock = mounts[0] / "lockcache" / "locks" / "directory"
    lock.parent.mkdir(parents=True, mode=0o700)
    with ThreadPoolExecutor(2) as threads:
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            opening = [threads.submit(FileStreamProgramCache, path) for path in mounts]
            until(lambda: _descriptors_of(locks) == 1 + len(mounts))  # each has seen that there is no page
        first, second = (each.result() for each in opening)
    assert len(made) == 1, "the second takes the first one's"
    with first, second:
        for number, key in enumerate(KEYS):
            (first, second)[number % 2][key] = os.urandom(5000)
        assert first.stats().bytes == second.stats().bytes >= 5000 * len(KEYS)
        assert first.recount() == [], "no shard is counted wrongly"


def _descriptors_of(paths: set[str]) -> int:
    """Returns how many descriptors this process has of these files. Earlier tests may have left some of others."""
    with os.scandir("/proc/self/fd") as found:
        return sum(_leads_to(each.path) in paths for each in found)


def _leads_to(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""  # closed meanwhile

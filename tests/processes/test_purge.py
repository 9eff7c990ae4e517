# SPDX-License-Identifier: Apache-2.0
"""A purge of old files, as scratch file systems and cleaners of ``/tmp`` have it, next to processes that write."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.processes.crowd import HANG_SECONDS, crowd

#: Keys of two shards, for whose locks all writers contend.
KEYS = [key for key in (b"%d" % number for number in range(3000)) if int(entry_name(key)[:2], 16) < 2]
PUTS = 300


def _write(path: str, number: int) -> int:
    with FileStreamProgramCache(path, lock_timeout_seconds=HANG_SECONDS) as cache:
        for turn in range(PUTS):
            cache[KEYS[(number * 7 + turn) % len(KEYS)]] = bytes(1000 + 3001 * ((number + turn) % 5))
        return cache.stats().dropped_writes


def _purge(path: str, has_ended: Any) -> int:
    """Remove the locks of shards again and again: each is as old as the first writer's use of it."""
    purged = 0
    while not has_ended.is_set():
        for name in os.listdir(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}/{name}")
                purged += 1
        os.sched_yield()
    return purged


@pytest.mark.slow
def test_locks_that_are_purged_under_living_writers_leave_the_accounting_exact(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    has_ended = multiprocessing.get_context("fork").Event()
    with crowd("fork", _purge, [(str(cache_path / "lockcache/locks"), has_ended)]) as purge:
        with crowd("fork", _write, [(str(cache_path), number) for number in range(4)]) as writers:
            assert writers.results() == [0] * 4
        has_ended.set()
        assert purge.results()[0] > 10
    assert FileStreamProgramCache(cache_path).recount() == []

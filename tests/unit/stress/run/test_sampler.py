# SPDX-License-Identifier: Apache-2.0
"""The sampler sees every byte, and knows which the accounting must know."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import StagedName
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.disk.space import Space
from lockcache_stress.run.sampler import Sampler
from tests.daemon.daemon_process import until
from tests.state_pages import state_space


def test_entries_of_a_cache_are_counted_and_accounted_for(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    cache["a"], cache["b"] = b"x" * 1000, b"y" * 234
    sampler = Sampler(str(cache_path), is_own_mount=False)
    sampler.sample_final()
    assert (sampler.peaks.disk_bytes, sampler.peaks.unaccounted_bytes) == (1234, 0)


def test_bytes_that_nobody_accounted_for_are_seen(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["a"] = b"x" * 1000
    shard = cache_path / "entries" / "00"
    shard.mkdir(exist_ok=True)
    (shard / ("0" * 62)).write_bytes(b"z" * 500)
    sampler = Sampler(str(cache_path), is_own_mount=False)
    sampler.sample_final()
    assert (sampler.peaks.disk_bytes, sampler.peaks.unaccounted_bytes) == (1500, 500)


def test_a_daemons_status_that_is_staged_for_a_moment_needs_no_account(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)
    (cache_path / "tmp" / str(StagedName(0, 0, *myself(), 99))).write_bytes(b"{}" * 350)
    sampler = Sampler(str(cache_path), is_own_mount=False)
    sampler.sample_final()
    assert (sampler.peaks.disk_bytes, sampler.peaks.unaccounted_bytes) == (700, 0)


@pytest.mark.parametrize("content, unaccounted", [(b"", 0), (b"x", 513)])
def test_a_file_made_just_before_its_reservation_may_lack_an_inode_and_no_byte(
    cache_path: Path, content: bytes, unaccounted: int
) -> None:
    state_space(cache_path, Space(1, 512))
    FileStreamProgramCache(cache_path)
    (cache_path / "tmp" / str(StagedName(0, 4096, *myself(), 99))).write_bytes(content)
    sampler = Sampler(str(cache_path), is_own_mount=False)
    sampler.sample_final()
    assert (sampler.peaks.disk_bytes, sampler.peaks.unaccounted_bytes) == (512 + len(content), unaccounted)


def grow(path: str, started: Any) -> None:
    """A writer that never stops, until it is killed."""
    cache = FileStreamProgramCache(path)
    number = 0
    while True:
        cache[f"{number % 50}"] = b"x" * (1000 + number % 3)
        number += 1
        started.set()


@pytest.mark.slow
def test_a_writer_is_stopped_while_its_bytes_are_counted_and_goes_on_afterwards(cache_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    process = context.Process(target=grow, args=(str(cache_path), started))
    process.start()
    try:
        assert started.wait(60)
        sampler = Sampler(str(cache_path), is_own_mount=False)
        for _ in range(20):
            sampler._next = 0.0
            sampler.sample([process.pid or 0])
        assert sampler.peaks.samples == 20
        assert sampler.peaks.unaccounted_bytes == 0
        before = os.stat(cache_path / "entries").st_ino, FileStreamProgramCache(cache_path).get("0")
        assert before[1] is not None
        started.clear()
        until(started.is_set)
    finally:
        process.kill()
        process.join()
        process.close()

# SPDX-License-Identifier: Apache-2.0
"""Verifying next to processes that replace, delete and evict what is being verified: never a false alarm."""

from __future__ import annotations

import contextlib
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.repair.quarantine import list_quarantine
from lockcache.filestream.repair.verify import verify_entry
from tests.crash.measure import assert_one_recount_repairs_all
from tests.processes.crowd import crowd

KEY = b"one key"
LOOKS, WRITES = 1000, 1000
# From an attribute to a record file to a separate tail and back: every way in which a publish is more than one rename.
STYLES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"record_files": True}, {}),
    ({}, {"log": "l" * 6000}),
    ({"record_files": True}, {"log": "l" * 6000}),
]


def _replace(path: str, style: int, done: Any, writes: Any) -> None:
    """Write the key in one style, as fast as can be, until asked to stop."""
    options, metadata = STYLES[style]
    serial = 0
    with FileStreamProgramCache(path, lock_timeout_seconds=30, **options) as cache:
        while not done.is_set():
            serial += 1
            cache.put_entry(KEY, Entry(b"%d " % serial * (50 + serial % 400), {**metadata, "serial": serial}))
            with writes.get_lock():
                writes.value += 1
            if serial % 50 == 0:
                with contextlib.suppress(KeyError):  # another one was faster
                    del cache[KEY]


@pytest.mark.long
@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("styles", [(0, 0), (1, 1), (0, 1, 2, 3)], ids=["attributes", "files", "all"])
def test_beside_writers_of_the_same_key_at_full_speed_nothing_is_ever_corrupt(
    cache_path: Path, styles: tuple[int, ...], repair: bool
) -> None:
    FileStreamProgramCache(cache_path).close()
    context = multiprocessing.get_context("fork")
    done, writes = context.Event(), context.Value("q", 0)
    directory = CacheDirectory(str(cache_path), 30.0)
    name, found = entry_name(KEY), dict.fromkeys(("whole", "passed over"), 0)
    with crowd("fork", _replace, [(str(cache_path), style, done, writes) for style in styles]) as writers:
        while found["whole"] < LOOKS or writes.value < WRITES:
            verdict = verify_entry(directory, name, repair=repair)
            if verdict is not None:
                assert verdict.state in found, verdict
                found[verdict.state] += 1
        done.set()
        writers.results()
    assert list_quarantine(directory.layout) == []
    directory.close()
    assert_one_recount_repairs_all(FileStreamProgramCache(cache_path))

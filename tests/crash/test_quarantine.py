# SPDX-License-Identifier: Apache-2.0
"""Quarantining under death at every step, on full disks and with a disk that gives no bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import SHARDS, entry_name
from lockcache.filestream.repair import quarantine
from lockcache.filestream.repair.verify import verify_entry
from tests.crash.damage import DAMAGES
from tests.crash.measure import (
    accounted,
    assert_accounting_is_not_too_low,
    assert_one_recount_repairs_all,
    every_death,
    on_disk,
)
from tests.crash.strace import run_traced
from tests.crash.test_disk_full import DISKS, _fill_up
from tests.verifying import verify_shard

KEY = b"the key"
SPOILED = Entry(b"spoiled" * 300, {"log": "l" * 50})
LONG_SPOILED = Entry(SPOILED.code, {"log": "l" * 5000})
OTHERS = {b"other %d" % number: Entry(b"%d" % number * 900, {"n": number}) for number in range(4)}

CASES: dict[str, tuple[Entry, dict[str, Any]]] = {
    "record in the attribute": (SPOILED, {}),
    "record in a file": (SPOILED, {"record_files": True}),
    "tail in a file": (LONG_SPOILED, {}),
}


def _spoiled(root: Path, entry: Entry, options: dict[str, Any]) -> CacheDirectory:
    """A directory with whole entries and a spoiled one, and with a full quarantine."""
    with FileStreamProgramCache(root, **options) as cache:
        cache.clear()
        for key, other in OTHERS.items():
            cache.put_entry(key, other)
        directory = CacheDirectory(str(root), 2.0)
        for key in (b"spoiled before", b"spoiled after that", KEY):
            cache.put_entry(key, entry)
            name = entry_name(key)
            DAMAGES["last bit flipped"](Path(directory.layout.entry(name)))
            if key != KEY:
                verify_entry(directory, name, repair=True)
        cache.recount()
    return directory


def _corrupt_payloads(root: Path) -> int:
    """Returns how often the spoiled bytes are there, in any place."""
    spoiled = bytearray(SPOILED.code)
    spoiled[-1] ^= 1
    kept = [file for file in (root / "lockcache/quarantine").glob("2*") if not file.name.endswith(".record")]
    return sum(file.read_bytes() == spoiled for file in [*kept, *(root / "entries").glob("??/*")])


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_process_that_dies_at_any_step_of_quarantining_loses_nothing_and_counts_nothing_twice(
    cache_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, options = CASES[case]
    monkeypatch.setattr(quarantine, "MOST_ENTRIES", 2)

    def prepare() -> Callable[[], object]:
        directory = _spoiled(cache_path, entry, options)
        assert _corrupt_payloads(cache_path) == 3
        return lambda: verify_entry(directory, entry_name(KEY), repair=True)

    assert len(every_death(prepare, lambda: _check(cache_path, options))) > 20
    assert _corrupt_payloads(cache_path) == 2, "the oldest went, and the newest is kept"
    assert accounted(cache_path) == on_disk(cache_path)


def _check(root: Path, options: dict[str, Any]) -> None:
    assert_accounting_is_not_too_low(root)
    cache = FileStreamProgramCache(root, lock_timeout_seconds=2, **options)
    assert cache.get(KEY) is None, "never served, and never without its record"
    for key, other in OTHERS.items():
        assert cache.get_entry(key) == other
    assert 2 <= _corrupt_payloads(root) <= 3, "not lost on the way"
    cache.put_entry(KEY, SPOILED)
    assert cache.get_entry(KEY) == SPOILED, "the next writer of the key is not hindered"
    assert_accounting_is_not_too_low(root)
    assert_one_recount_repairs_all(cache)
    cache.close()


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("case", CASES)
def test_on_a_full_disk_what_is_corrupt_is_moved_or_removed_and_the_accounting_stays_exact(
    kind: str, case: str, mount_tmpfs: Callable[..., Path], mount_image: Callable[..., Path]
) -> None:
    disk = DISKS[kind](mount_tmpfs, mount_image)
    root, (entry, options) = disk / "cache", CASES[case]
    with FileStreamProgramCache(root, **options) as cache:
        cache.put_entry(KEY, entry)
        cache.put_entry(b"other", SPOILED)
    directory = CacheDirectory(str(root), 2.0)
    DAMAGES["last bit flipped"](Path(directory.layout.entry(entry_name(KEY))))
    _fill_up(disk)
    verdict = verify_entry(directory, entry_name(KEY), repair=True)
    assert verdict is not None
    assert verdict.is_repaired, verdict.error
    assert accounted(root) == on_disk(root)
    assert os.path.exists(verdict.moved_to) or not verdict.moved_to
    cache = FileStreamProgramCache(root, **options)
    assert cache.get(KEY) is None
    assert cache.get_entry(b"other") == SPOILED
    assert_one_recount_repairs_all(cache)
    directory.close()


RENAMES = """
import sys
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.repair.verify import verify_entry
directory = CacheDirectory(sys.argv[1], 2.0)
verdict = verify_entry(directory, sys.argv[2], repair=True)
assert verdict.state == "corrupt", verdict
assert verdict.is_repaired == (sys.argv[3] == "gone"), verdict
assert not verdict.moved_to or sys.argv[3] == "gone", verdict
"""


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "error, when, left",
    [("EIO", "1", "there"), ("EXDEV", "1", "there"), ("ENOSPC", "1", "gone"), ("ENOSPC", "2", "gone")],
)
def test_a_refused_rename_leaves_the_entry_whole_or_gone_and_the_accounting_exact(
    cache_path: Path, case: str, error: str, when: str, left: str
) -> None:
    directory = _spoiled(cache_path, *CASES[case])
    name = entry_name(KEY)
    paths = (directory.layout.entry(name), directory.layout.record(name))
    done = run_traced(RENAMES, cache_path, name, left, inject=f"renameat:error={error}:when={when}", paths=paths)
    assert done == 0
    assert accounted(cache_path) == on_disk(cache_path)
    assert os.path.exists(directory.layout.entry(name)) == (left == "there")
    assert_one_recount_repairs_all(FileStreamProgramCache(cache_path))
    directory.close()


def test_after_any_of_this_every_entry_that_is_left_has_a_verdict(cache_path: Path) -> None:
    directory = _spoiled(cache_path, *CASES["tail in a file"])
    found = [verdict for shard in range(SHARDS) for verdict in verify_shard(directory, shard, repair=True)]
    assert sorted(verdict.state for verdict in found) == ["corrupt"] + ["whole"] * len(OTHERS)
    directory.close()

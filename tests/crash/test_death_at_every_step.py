# SPDX-License-Identifier: Apache-2.0
"""Death in front of every single call to the operating system: invariant 5 (death is free), and the others after it.

That of an eviction, of a recount, of a lease and of a sweep, with records in attributes, is in the kill table:
``tests/stress/test_kill_table.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache_stress.experiments.kill_points import CHANGES
from tests.crash.measure import assert_accounting_is_not_too_low, assert_one_recount_repairs_all, empty, every_death
from tests.matrix_sampling import all_but

OLD = Entry(b"old" * 500, {"name": "old", "symbols": {b"f": b"_Z1fv"}})
NEW = Entry(b"newer" * 700, {"name": "new", "symbols": {b"g": b"_Z1gv"}})
# A tail that fits into no attribute of ext4, so that it is separate: head in the attribute, tail in a file.
LONG_OLD, LONG_NEW = (Entry(e.code, {**e.metadata, "log": e.code.decode() * 4}) for e in (OLD, NEW))
KEY = b"the key"
OTHERS = {b"other %d" % n: Entry(b"%d" % n * 900, {"n": n}) for n in range(6)}
FILES = {"record_files": True}


def _fill(root: Path, *, before: Entry | None, options: dict[str, Any]) -> FileStreamProgramCache:
    empty(root)
    with FileStreamProgramCache(root, lock_timeout_seconds=2, **options) as cache:
        for key, entry in OTHERS.items():
            cache.put_entry(key, entry)
        if before is not None:
            cache.put_entry(KEY, before)
    return FileStreamProgramCache(root, lock_timeout_seconds=2)


def _check(
    root: Path,
    allowed: Sequence[Entry] = (OLD,),
    may_lose_others: bool = False,
    options: dict[str, Any] | None = None,
) -> None:
    """Check what must hold for all other processes, at once, whatever the dead one left."""
    assert_accounting_is_not_too_low(root)
    cache = FileStreamProgramCache(root, lock_timeout_seconds=2, **(options or {}))
    found = cache.get_entry(KEY)
    assert found is None or found in allowed, found
    for key, entry in OTHERS.items():
        found = cache.get_entry(key)
        assert found == entry or (may_lose_others and found is None)
    assert_accounting_is_not_too_low(root)
    cache.put_entry(KEY, LONG_NEW)
    assert cache.get_entry(KEY) == LONG_NEW, "the next writer of the key is not hindered"
    assert cache.stats().dropped_writes == 0
    assert_accounting_is_not_too_low(root)
    assert_one_recount_repairs_all(cache)
    assert cache.get_entry(KEY) == LONG_NEW
    cache.close()


PUTS = {
    "a new key": (None, {}, NEW, {}),
    "a replaced key": (OLD, {}, NEW, {}),
    "a new key, record in a file": (None, FILES, NEW, FILES),
    "a replaced key, records in files": (OLD, FILES, NEW, FILES),
    "a replaced key, record from file to attribute": (OLD, FILES, NEW, {}),
    "a replaced key, record from attribute to file": (OLD, {}, NEW, FILES),
    "a replaced key, tails in files": (LONG_OLD, {}, LONG_NEW, {}),
    "a replaced key, tail from file to attribute": (LONG_OLD, {}, NEW, {}),
    "a replaced key, synced": (OLD, {}, NEW, {"fsync": True}),
}


# The others go through the same steps, in other numbers.
ORDINARY_PUTS = ["a replaced key"]


@pytest.mark.parametrize("case", all_but(ORDINARY_PUTS, PUTS))
def test_a_writer_that_dies_at_any_step_of_a_put_leaves_the_older_entry_the_newer_or_none(
    cache_path: Path, case: str
) -> None:
    before, options_before, after, options = PUTS[case]

    def prepare() -> Callable[[], object]:
        _fill(cache_path, before=before, options=options_before).close()
        cache = FileStreamProgramCache(cache_path, **options)
        return lambda: cache.put_entry(KEY, after)

    allowed = [after] if before is None else [before, after]
    assert len(every_death(prepare, lambda: _check(cache_path, allowed=allowed, options=options))) > 15


@pytest.mark.long
def test_a_writer_that_dies_at_any_step_of_an_eviction_of_record_files_leaves_whole_entries_and_no_debt(
    cache_path: Path,
) -> None:
    cap = sum(len(entry.code) for entry in OTHERS.values()) + 2900

    def prepare() -> Callable[[], object]:
        _fill(cache_path, before=OLD, options=FILES).close()
        cache = FileStreamProgramCache(cache_path, max_size_bytes=cap + 15_000, **FILES)
        cache.put_entry(b"filler", Entry(bytes(15_000)))
        return lambda: cache.put_entry(KEY, NEW)

    check = partial(_check, cache_path, [OLD, NEW], may_lose_others=True, options=FILES)
    steps = every_death(prepare, check)
    assert any("unlink" in step and "entries" in step for step in steps), "it evicted"


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, FILES], ids=["attributes", "record files"])
def test_a_process_that_dies_at_any_step_of_a_delete_leaves_the_entry_or_nothing(
    cache_path: Path, options: dict[str, Any]
) -> None:
    def prepare() -> Callable[[], object]:
        cache = _fill(cache_path, before=OLD, options=options)
        return lambda: cache.__delitem__(KEY)

    assert len(every_death(prepare, partial(_check, cache_path, options=options))) >= 8


@pytest.mark.long
def test_a_process_that_dies_at_any_step_of_a_clear_leaves_whole_entries(cache_path: Path) -> None:
    def prepare() -> Callable[[], object]:
        return _fill(cache_path, before=OLD, options={}).clear

    assert len(every_death(prepare, partial(_check, cache_path, may_lose_others=True), CHANGES)) >= 2 * len(OTHERS)


@pytest.mark.long
def test_a_process_that_dies_at_any_step_of_changing_the_cap_leaves_the_old_cap_or_the_new(cache_path: Path) -> None:
    caps = set()

    def prepare() -> Callable[[], object]:
        _fill(cache_path, before=OLD, options={"max_size_bytes": 10**6}).close()
        return lambda: FileStreamProgramCache(cache_path, max_size_bytes=10**7)

    def look() -> Callable[[], object]:
        if cache_path.exists():
            with FileStreamProgramCache(cache_path) as cache:
                caps.add(cache.max_size_bytes)
        return prepare()

    every_death(look, partial(_check, cache_path))
    assert caps == {10**6, 10**7}, "some died before the new cap was in force, some after"


@pytest.mark.long
def test_a_process_that_dies_at_any_step_of_making_a_directory_leaves_one_that_the_next_can_use(
    cache_path: Path,
) -> None:
    def prepare() -> Callable[[], object]:
        shutil.rmtree(cache_path, ignore_errors=True)
        return lambda: FileStreamProgramCache(cache_path, max_size_bytes=10**6)

    def check() -> None:
        assert_accounting_is_not_too_low(cache_path)
        with FileStreamProgramCache(cache_path, lock_timeout_seconds=2) as cache:
            assert cache.max_size_bytes in (None, 10**6)
            cache.put_entry(KEY, NEW)
            assert cache.get_entry(KEY) == NEW
            assert_one_recount_repairs_all(cache)

    assert len(every_death(prepare, check, (*CHANGES, "close", "fstat", "lstat", "stat"))) > 20


def test_a_process_that_dies_at_any_step_of_counting_a_directory_of_cuda_core_leaves_it_uncounted_or_counted(
    cache_path: Path,
) -> None:
    def prepare() -> Callable[[], object]:
        _fill(cache_path, before=OLD, options={}).close()
        shutil.rmtree(cache_path / "lockcache")  # what cuda.core's own cache leaves is just entries/ and tmp/
        return lambda: FileStreamProgramCache(cache_path)

    steps = every_death(prepare, partial(_check, cache_path), CHANGES)
    assert any("state" in step and "rename" in step for step in steps)

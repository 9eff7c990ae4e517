# SPDX-License-Identifier: Apache-2.0
"""Death in front of every call of what makes, replaces and removes a view: a whole view or none, and no debt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import Space
from lockcache_stress.experiments.kill_points import CHANGES
from tests.crash.measure import assert_accounting_is_not_too_low, assert_one_recount_repairs_all, empty, every_death

OLD = {"kernel.cubin": b"old" * 300, "kernel.json": b"{}"}
NEW = {"kernel.cubin": b"newer" * 300, "kernel.json": b"[]"}
BYTES = sum(map(len, OLD.values()))


def _fill(root: Path, *, is_viewed: bool) -> FileStreamProgramCache:
    empty(root)
    cache = FileStreamProgramCache(root, lock_timeout_seconds=2.0)
    cache.put_files("k", OLD)
    cache["other"] = b"other"
    if is_viewed:
        cache.view_files("k")
    return cache


def _make(root: Path) -> Callable[[], object]:
    cache = _fill(root, is_viewed=False)
    return lambda: cache.view_files("k")


def _repair(root: Path) -> Callable[[], object]:
    cache = _fill(root, is_viewed=True)
    [cubin] = (root / "lockcache/views").glob("??/*/kernel.cubin")
    cubin.write_bytes(b"damage")
    return lambda: cache.view_files("k")


def _replace(root: Path) -> Callable[[], object]:
    cache = _fill(root, is_viewed=True)
    return lambda: cache.put_files("k", NEW)


def _remake(root: Path) -> Callable[[], object]:
    cache = _fill(root, is_viewed=True)

    def act() -> None:
        cache.put_files("k", NEW)
        cache.view_files("k")

    return act


def _delete(root: Path) -> Callable[[], object]:
    cache = _fill(root, is_viewed=True)
    return lambda: cache.__delitem__("k")


def _evict(root: Path) -> Callable[[], object]:
    _fill(root, is_viewed=True).close()
    cache = FileStreamProgramCache(root, max_size_bytes=3200, lock_timeout_seconds=2.0)
    return lambda: cache.__setitem__("large", bytes(2 * BYTES))


def _recount(root: Path) -> Callable[[], object]:
    cache = _fill(root, is_viewed=True)
    for entry in (root / "entries").glob("??/*"):
        entry.unlink()
    return cache.recount


ACTIONS = {
    "make": (_make, (), 20),
    "repair": (_repair, (), 20),
    "replace": (_replace, (), 15),
    "remake": (_remake, CHANGES, 10),
    "delete": (_delete, (), 8),
    "evict": (_evict, CHANGES, 6),
    "recount": (_recount, CHANGES, 3),
}


@pytest.mark.parametrize("name", ["make", *(pytest.param(name, marks=pytest.mark.long) for name in [*ACTIONS][1:])])
def test_whoever_dies_at_any_step_leaves_the_older_view_the_newer_or_none(cache_path: Path, name: str) -> None:
    prepare, calls, least = ACTIONS[name]
    assert len(every_death(lambda: prepare(cache_path), lambda: _check(cache_path), calls)) >= least


def _check(root: Path) -> None:
    assert_accounting_is_not_too_low(root)
    cache = FileStreamProgramCache(root, lock_timeout_seconds=2.0)
    assert cache.get("other") in (None, b"other")
    files, path = cache.get_files("k"), cache.view_files("k")
    assert files in (None, OLD, NEW)
    # Of a full cache the entry itself may have to go, for what the dead one had reserved.
    assert (path is None) == (files is None) or cache.max_size_bytes is not None
    if path is not None:
        assert {file.name: file.read_bytes() for file in Path(path).iterdir()} == files
        del path
    assert_accounting_is_not_too_low(root)
    cache.put_files("k", NEW)
    newer = cache.view_files("k")
    assert newer is not None, "the next one is not hindered"
    assert Path(newer, "kernel.cubin").read_bytes() == NEW["kernel.cubin"]
    del newer
    assert_one_recount_repairs_all(cache)
    assert cache.view_files("k") is not None, "the recount took no view of a living entry"
    cache.close()


def test_a_half_made_view_is_its_owners_until_the_owner_is_dead(cache_path: Path) -> None:
    from lockcache.filestream.entry import StagedView
    from lockcache.lowlevel import CacheDirectory

    directory = CacheDirectory(str(cache_path), 2.0)
    name = "ab" + "0" * 62
    staged = StagedView(directory, name, 5000)
    staged.reserve()
    staged.fill({"kernel.cubin": b"x" * 1000})
    cache = FileStreamProgramCache(cache_path)
    assert cache.recount() == []
    assert cache.stats().bytes == 5000
    [folder] = (cache_path / "tmp").iterdir()
    staged.abandon()
    assert not folder.exists()
    assert cache.stats().bytes == 0
    assert directory.space == Space(1)

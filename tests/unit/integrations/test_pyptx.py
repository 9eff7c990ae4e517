# SPDX-License-Identifier: Apache-2.0
"""lockcache.integrations.pyptx: pyptx's names and hash, memory and disk as there, and the last put everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockcache import CacheStats
from lockcache.integrations import pyptx
from lockcache.integrations.pyptx import CacheEntry, CacheKey, CubinCache
from tests.threads import run_threads
from tests.unit.integrations.pyptx_format import ENTRY, KEY, KEYS, PTX, file, needs_pyptx


@needs_pyptx
@pytest.mark.parametrize("digest", KEYS)
def test_the_hash_is_the_one_that_the_installed_pyptx_computes(digest: str) -> None:
    from pyptx.cache import CacheKey as Upstream

    assert CacheKey(*KEYS[digest]).hash() == Upstream(*KEYS[digest]).hash()


@needs_pyptx
def test_every_name_of_pyptx_cache_is_there_with_its_parameters() -> None:
    import inspect

    import pyptx.cache as upstream

    names = [name for name, value in vars(upstream).items() if getattr(value, "__module__", "") == upstream.__name__]
    for name in [*names, "DEFAULT_CACHE_DIR"]:
        ours, theirs = getattr(pyptx, name), getattr(upstream, name)
        assert ours is not theirs
        if callable(theirs):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
        members = vars(theirs) if inspect.isclass(theirs) else {}
        for method in [each for each, value in members.items() if callable(value) and each[0] != "_"]:
            mine = inspect.signature(getattr(ours, method)).parameters
            assert list(mine) == list(inspect.signature(getattr(theirs, method)).parameters)


def test_the_global_cache_is_made_once_in_the_default_directory_and_can_be_replaced(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyptx, "DEFAULT_CACHE_DIR", directory)
    pyptx.set_global_cache(None)
    try:
        first = pyptx.get_global_cache()
        assert pyptx.get_global_cache() is first
        first.put(ENTRY)
        assert file(directory, "json").exists()
        mine = CubinCache(enable_disk=False)
        pyptx.set_global_cache(mine)
        assert pyptx.get_global_cache() is mine
    finally:
        pyptx.set_global_cache(None)


def test_what_is_put_is_the_same_object_here_and_an_equal_one_elsewhere(
    cache: CubinCache, fresh: Callable[[], CubinCache]
) -> None:
    cache.put(ENTRY)
    assert cache.get(KEY) is ENTRY
    other = fresh()
    found = other.get(KEY)
    assert found == ENTRY
    assert found is not ENTRY
    assert other.get(KEY) is found
    assert type(found.metadata["cluster"]) is tuple
    assert found.key.template_kwargs == KEY.template_kwargs


def test_clear_forgets_memory_and_with_disk_the_entries_on_disk_and_nothing_else(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache]
) -> None:
    cache.put(ENTRY)
    cache.clear()
    assert len(cache) == 0
    assert cache.get(KEY) == ENTRY
    (directory / "notes.json").write_text("mine")
    file(directory, "ptx", "0" * 32).write_text("left by somebody who died")
    cache.clear(disk=True)
    assert (len(cache), cache.get(KEY), fresh().get(KEY)) == (0, None, None)
    assert sorted(each.name for each in directory.iterdir()) == ["lockcache", "notes.json"]
    cache.put(ENTRY)
    assert fresh().get(KEY) == ENTRY


def test_memory_outlives_what_was_evicted_from_disk(cache: CubinCache, directory: Path) -> None:
    cache.put(ENTRY)
    for suffix in ("json", "ptx", "cubin"):
        file(directory, suffix).unlink()
    assert cache.get(KEY) is ENTRY


def test_a_deleted_directory_is_made_again_by_the_next_put(
    cache: CubinCache, directory: Path, fresh: Callable[[], CubinCache]
) -> None:
    import shutil

    cache.put(ENTRY)
    shutil.rmtree(directory)
    other = replace(ENTRY, key=replace(KEY, arch="sm_80"))
    assert cache.get(other.key) is None
    cache.put(other)
    assert fresh().get(other.key) == other


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"ptx_source": b"bytes"}, "ptx_source.*bytes"),
        ({"cubin_bytes": "text"}, "cubin_bytes.*str"),
        ({"cubin_bytes": 5}, "cubin_bytes.*int"),
        ({"metadata": [1]}, "metadata.*list"),
        ({"metadata": {(1, 2): 3}}, "keys must be str"),
    ],
)
def test_an_entry_that_no_file_can_hold_is_refused_and_changes_nothing(
    cache: CubinCache, fresh: Callable[[], CubinCache], changes: dict[str, Any], names: str
) -> None:
    cache.put(ENTRY)
    with pytest.raises(TypeError, match=names):
        cache.put(replace(ENTRY, **changes))
    assert cache.get(KEY) is ENTRY
    assert fresh().get(KEY) == ENTRY


def test_a_hash_that_is_no_file_name_is_refused(cache: CubinCache) -> None:
    class Wild(CacheKey):
        def hash(self) -> str:
            return "../../etc/passwd"

    with pytest.raises(ValueError, match="32 hex digits"):
        cache.put(CacheEntry(Wild("f", (), (), "a"), "", None))


def test_stats_say_what_happened_and_what_the_directory_holds(cache: CubinCache, directory: Path) -> None:
    cache.put(ENTRY)
    cache.get(KEY), cache.get(replace(KEY, arch="sm_80"))
    size = sum(file(directory, suffix).stat().st_size for suffix in ("json", "ptx", "cubin"))
    assert cache.stats() == CacheStats(hits=1, misses=1, puts=1, bytes=size, entries=1)
    memory = CubinCache(enable_disk=False)
    memory.put(ENTRY)
    assert memory.stats() == CacheStats(bytes=len(PTX.encode()) + 10, entries=1)


def test_threads_see_whole_entries_and_the_last_one(cache: CubinCache, fresh: Callable[[], CubinCache]) -> None:
    def work(number: int) -> None:
        for turn in range(30):
            tag = f"{number} {turn}"
            cache.put(CacheEntry(KEY, tag, tag.encode() if turn % 3 else None, {"tag": tag}))
            found = cache.get(KEY)  # or None: another thread is between removing one and publishing the next
            if found is not None:
                assert found.cubin_bytes in (None, found.ptx_source.encode())
                assert found.metadata == {"tag": found.ptx_source}

    run_threads(work, [(number,) for number in range(4)])
    assert KEY in cache
    assert fresh().get(KEY) == cache.get(KEY)

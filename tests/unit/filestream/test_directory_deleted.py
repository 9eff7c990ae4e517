# SPDX-License-Identifier: Apache-2.0
"""A directory that is deleted underneath, whole or in part: made again, with its cap, and no descriptor left."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting.network_pages import NfsPage
from lockcache.filestream.disk import entry_name
from lockcache.filestream.entry import StagedEntry
from tests.matrix_sampling import diagonals
from tests.unit.material import descriptors, descriptors_to_begin_with, entry_path, on_disk


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def pretend_nfs(monkeypatch):
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs4")
    monkeypatch.setattr(NfsPage, "ways", NfsPage.ways[1:])  # a local disk takes whole blocks only


@pytest.mark.slow
@pytest.mark.parametrize(
    "what, record_files",
    diagonals(
        ["", "tmp", "entries", "lockcache", "lockcache/state",
         "lockcache/locks", "lockcache/records"],
        [False, True],
        2,
    ),
)  # fmt: skip
def test_after_anything_is_deleted_underneath_the_next_write_works_and_the_cap_holds(cache_path, what, record_files):
    size = 144 if record_files else 100
    with FileStreamProgramCache(cache_path, max_size_bytes=10 * size, record_files=record_files) as cache:
        cache.update({str(number): b"x" * 100 for number in range(10)})
        if (cache_path / what).exists():
            remove(cache_path / what)
        cache["new"] = b"y" * 100
        assert cache["new"] == b"y" * 100
        for number in range(30):
            cache[f"more{number}"] = b"z" * 100
            assert cache[f"more{number}"] == b"z" * 100
        assert cache.stats().dropped_writes == 0
        if what == "lockcache/records":
            cache.recount()  # until then it counts too much: the records of entries that are still there
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path)
        assert 5 * size <= on_disk(cache_path).bytes <= 10 * size
        with FileStreamProgramCache(cache_path) as other:
            assert other.max_size_bytes == 10 * size


@pytest.mark.parametrize("what", ["", "tmp", "entries", "lockcache", "lockcache/state", "lockcache/locks"])
@pytest.mark.parametrize("use", ["delete", "clear", "read", "stats", "recount", "len", "close"])
def test_after_anything_is_deleted_underneath_no_other_use_fails(cache_path, what, use):
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"1"
        remove(cache_path / what)
        if use == "delete":
            try:
                del cache["k"]
            except KeyError:
                assert what in ("", "entries")
            assert cache.get("k") is None
        elif use == "read":
            assert cache.get("k") in (None, b"1")
        elif use == "len":
            assert len(cache) in (0, 1)
        else:
            getattr(cache, use)()


def test_a_directory_that_was_moved_away_is_left_alone(cache_path, tmp_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"old"
        cache_path.rename(tmp_path / "moved")
        cache["k"] = b"new"
        assert cache["k"] == b"new"
        assert Path(entry_path(tmp_path / "moved")).read_bytes() == b"old"
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path) == (3, 1)


def test_on_nfs_a_directory_that_was_moved_away_is_left_within_a_second(cache_path, tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pretend_nfs(monkeypatch)
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"old"
        cache_path.rename(tmp_path / "moved")
        with FileStreamProgramCache(cache_path) as other:  # as another host does
            other["k"] = b"other"
        left = cache._directory.attached()
        now[0] += 0.9
        cache["k"] = b"within"
        assert cache._directory.attached() is left
        now[0] += 0.1
        cache["k"] = b"newest"
        assert cache._directory.attached() is not left
        assert cache["k"] == b"newest"
        assert cache.stats().dropped_writes == 0
        cache.recount()
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path) == (6, 1)


def test_on_nfs_no_thread_stays_with_a_page_that_another_one_has_left(cache_path, monkeypatch):
    pretend_nfs(monkeypatch)
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"old"
        staged = StagedEntry(cache._directory, entry_name(b"first"), 1)
        shutil.rmtree(cache_path)
        cache.stats()
        staged.reserve()
        assert staged.reservation.page is cache._directory.attached()
        staged.abandon()


@pytest.mark.parametrize("shard", ["00", "ff"])
def test_on_nfs_a_page_that_is_cut_is_made_again_by_the_next_write(cache_path, monkeypatch, shard):
    pretend_nfs(monkeypatch)
    keys = [key for key in map(str, range(20_000)) if entry_name(key.encode()).startswith(shard)]
    with FileStreamProgramCache(cache_path, max_size_bytes=10_000) as cache:
        cache.update({str(number): b"x" * 100 for number in range(30)})
        os.truncate(cache_path / "lockcache" / "state", 100)
        cache[keys[0]] = b"y" * 100
        assert cache.stats().dropped_writes == 0
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path)
        assert cache.stats().entries == 31


@pytest.mark.slow
def test_close_gives_back_every_descriptor(cache_path):
    before = descriptors_to_begin_with()
    cache = FileStreamProgramCache(cache_path, max_size_bytes=5000)
    for number in range(300):
        cache[str(number)] = b"x" * 100
        cache[str(number)]
    cache.close()
    assert descriptors() == before

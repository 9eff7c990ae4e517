"""A directory that is deleted underneath, whole or in part: made again, with its cap, and no descriptor left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.matrix_sampling import diagonals
from tests.unit.material import descriptors, entry_path, on_disk


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    "what, record_files",
    diagonals(
        ["", "tmp", "entries", "lockcache", "lockcache/usage", "lockcache/policy.json",
         "lockcache/locks", "lockcache/records", "lockcache/format"],
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
            assert other.max_size_bytes == (10 * size if what != "lockcache/policy.json" else None)


@pytest.mark.parametrize("what", ["", "tmp", "entries", "lockcache", "lockcache/usage", "lockcache/locks"])
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


@pytest.mark.slow
def test_close_gives_back_every_descriptor(cache_path):
    before = descriptors()
    cache = FileStreamProgramCache(cache_path, max_size_bytes=5000)
    for number in range(300):
        cache[str(number)] = b"x" * 100
        cache[str(number)]
    cache.close()
    assert descriptors() == before


@pytest.mark.slow
def test_many_deletions_leak_no_descriptors(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        for _ in range(10):
            cache["k"] = b"1"
            shutil.rmtree(cache_path)
        cache["k"] = b"1"
        many = len(descriptors())
        for _ in range(10):
            shutil.rmtree(cache_path)
            cache["k"] = b"1"
        assert len(descriptors()) <= many

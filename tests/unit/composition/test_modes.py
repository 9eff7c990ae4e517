# SPDX-License-Identifier: Apache-2.0
"""Caches that only read: they make and change nothing, and wait for nobody."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache, TieredProgramCache
from lockcache.filestream.disk import Layout, entry_name
from tests.leases import take_lease
from tests.threads import run_threads

ENTRY = Entry(b"code", {"arch": "sm_90"})


@pytest.fixture
def golden(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_entry("k", ENTRY)
        cache["other"] = b"other code"
    return cache_path


def state(root: Path) -> dict[str, object]:
    """Returns all that could be changed below ``root``: names, contents, modes and times, of last use too."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            status = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (status.st_mode, status.st_size, status.st_mtime_ns)
        for file in files:
            path = Path(folder, file)
            if path.name != "state":  # each program reads it
                found[f"{path}: used"] = path.stat().st_atime_ns
    return found


@pytest.mark.parametrize("compile_once", [False, True])
def test_nothing_is_changed_in_a_directory_that_is_only_read(
    golden: Path, compile_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = state(golden)
    with caplog.at_level("INFO", "lockcache"):
        cache = FileStreamProgramCache(golden, read_only=True, max_size_bytes=1, compile_once=compile_once)
        assert (cache["k"], cache.get_entry("k"), cache.get("missing"), len(cache)) == (b"code", ENTRY, None, 2)
        cache["new"] = b"code"
        cache.put_entry("newer", ENTRY)
        assert cache.get_or_compute("k", lambda: b"another") == b"code"
        assert [cache.get_or_compute("absent", lambda: b"compiled") for _ in range(2)] == [b"compiled"] * 2
        stats = cache.stats()
        cache.close()
    assert (stats.hits, stats.puts, stats.dropped_writes, stats.evictions) == (3, 0, 4, 0)
    assert [record.levelname for record in caplog.records] == ["INFO"], "it was asked for, and is said once"
    assert state(golden) == before


@pytest.mark.parametrize("delete", ["__delitem__", "clear", "recount"])
def test_what_is_to_be_deleted_is_an_error_that_says_why_not(golden: Path, delete: str) -> None:
    cache = FileStreamProgramCache(golden, read_only=True)
    with pytest.raises(
        PermissionError, match=r"this cache only reads the directory, and changes nothing \(it was asked for\)"
    ) as error:
        getattr(cache, delete)(*["k"] if delete == "__delitem__" else [])
    assert error.value.filename == str(golden)
    assert cache["k"] == b"code"


def test_what_was_written_over_is_not_read_through_the_same_object(golden: Path) -> None:
    cache = FileStreamProgramCache(golden, read_only=True)
    cache["k"] = b"newer"
    assert (cache.get("k"), cache.get_entry("k"), cache["other"]) == (None, None, b"other code")
    assert cache.get_or_compute("k", lambda: b"newest") == b"newest"
    assert FileStreamProgramCache(golden, read_only=True)["k"] == b"code"


def test_as_an_upper_tier_it_never_hides_what_is_newer_below(golden: Path, tmp_path: Path) -> None:
    below = FileStreamProgramCache(tmp_path / "below")
    tiers = TieredProgramCache(FileStreamProgramCache(golden, read_only=True), below)
    assert tiers["k"] == b"code"
    tiers["k"] = b"newer"
    assert tiers["k"] == below["k"] == b"newer"


def test_nobody_is_waited_for(golden: Path) -> None:
    lease = take_lease(Layout(str(golden)), entry_name(b"missing"), 0, "somebody else's")
    assert lease is not None
    try:
        for compile_once in (False, True):
            with FileStreamProgramCache(golden, read_only=True, compile_once=compile_once) as cache:
                assert cache.get("missing") is None
                assert cache.get_or_compute("missing", lambda: b"compiled") == b"compiled"
    finally:
        lease.release()


def test_threads_that_miss_one_key_compile_it_at_the_same_time(golden: Path) -> None:
    cache, both = FileStreamProgramCache(golden, read_only=True), threading.Barrier(2, timeout=60)

    def compute() -> bytes:
        both.wait()
        return b"code"

    run_threads(cache.get_or_compute, [("missing", compute) for _ in range(2)])
    assert not both.broken


def test_a_missing_directory_is_an_empty_one_and_stays_missing(
    cache_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FileStreamProgramCache(cache_path, read_only=True) as cache:
        assert (cache.path, len(cache), cache.get("k"), cache.max_size_bytes) == (str(cache_path), 0, None, None)
        cache["k"] = b"code"
        with pytest.raises(KeyError):
            del cache["k"]
        cache.clear()
        assert cache.get_or_compute("k", lambda: b"code") == b"code"
        assert (cache.recount(), cache.stats().entries) == ([], 0)
    assert not cache_path.exists()
    assert "there is no cache to read here" in caplog.text
    cache_path.write_text("not a directory")
    with pytest.raises(NotADirectoryError):
        FileStreamProgramCache(cache_path, read_only=True)


def test_the_variable_counts_where_the_program_says_nothing(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_READONLY", "1")
    for arguments in ({}, {"read_only": "auto"}):
        cache = FileStreamProgramCache(golden, **arguments)
        cache["new"] = b"code"
        assert cache.stats().dropped_writes == 1
        copy = pickle.loads(pickle.dumps(cache))
        monkeypatch.delenv("LOCKCACHE_READONLY")
        copy["new"] = b"code"
        assert copy.get("new") is None, "a copy does as its original"
        monkeypatch.setenv("LOCKCACHE_READONLY", "1")
    with FileStreamProgramCache(golden, read_only=False) as cache:
        cache["new"] = b"code"
        assert cache["new"] == b"code"
    monkeypatch.setenv("LOCKCACHE_READONLY", "perhaps")
    with pytest.raises(ValueError, match="LOCKCACHE_READONLY"):
        FileStreamProgramCache(golden)

# SPDX-License-Identifier: Apache-2.0
"""SQLiteProgramCache where it differs from the other back ends: its file, its order of use, fork."""

from __future__ import annotations

import os
import pickle
import random
import stat
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from lockcache import Entry, SQLiteProgramCache
from tests.unit.forked import in_child
from tests.unit.sqlite.sqlite_file import edited


@pytest.mark.unmeasured
def test_sqlite3_is_imported_when_a_cache_is_made_and_not_before(path: Path) -> None:
    code = (
        "import sys, lockcache\n"
        "from lockcache import SQLiteProgramCache\n"
        "assert 'sqlite3' not in sys.modules\n"
        "SQLiteProgramCache(sys.argv[1]).close()\n"
        "assert 'sqlite3' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)


def test_the_cache_is_one_file_in_wal_mode_that_only_its_owner_may_use(cache: SQLiteProgramCache, path: Path) -> None:
    cache["k"] = b"code"
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with edited(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    cache.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_default_path_is_in_lockcache_dir_else_in_the_user_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCKCACHE_DIR", "")
    with SQLiteProgramCache() as cache:
        assert cache.path == str(tmp_path / "xdg" / "lockcache" / "programs.sqlite3")
    monkeypatch.setenv("LOCKCACHE_DIR", str(tmp_path / "chosen"))
    with SQLiteProgramCache() as cache:
        assert cache.path == str(tmp_path / "chosen" / "programs.sqlite3")


@pytest.mark.parametrize("wrong, error", [(5, TypeError), (b"x", TypeError), ("", ValueError), ("a\0b", ValueError)])
def test_a_path_that_is_none_is_an_error_that_shows_it(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="path"):
        SQLiteProgramCache(wrong)


def test_entries_and_their_order_of_use_outlive_the_object(path: Path) -> None:
    with SQLiteProgramCache(path, max_size_bytes=30) as cache:
        for key in "abc":
            cache.put_entry(key, Entry(key.encode() * 10))
        cache["a"]
    with SQLiteProgramCache(path, max_size_bytes=30) as cache:
        cache["d"] = b"d" * 10
        assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


@pytest.mark.slow
@settings(max_examples=20, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), reopens=st.booleans())
def test_eviction_is_strictly_least_recently_used(
    tmp_path_factory: pytest.TempPathFactory, seed: int, reopens: bool
) -> None:
    draw = random.Random(seed)
    model: OrderedDict[str, bytes] = OrderedDict()
    cache = SQLiteProgramCache(tmp_path_factory.mktemp("lru") / "db", max_size_bytes=1000)
    for _ in range(600):
        key = f"{draw.randrange(150)}"
        if draw.random() < 0.8:  # more distinct reads than are noted in memory
            assert cache.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)
        else:
            model.pop(key, None)
            model[key] = cache[key] = key.encode() * draw.randrange(1, 5)
            while sum(map(len, model.values())) > 1000:
                model.popitem(last=False)
        if reopens and draw.random() < 0.01:
            cache.close()
    assert len(cache) == len(model)
    cache.close()


def test_what_one_object_reads_another_knows_of_though_the_first_never_writes_nor_closes(path: Path) -> None:
    with SQLiteProgramCache(path, max_size_bytes=650) as reader:
        reader.update({f"{number:02}": b"x" * 10 for number in range(65)})
        for number in range(64):
            assert reader[f"{number:02}"] == b"x" * 10
        with SQLiteProgramCache(path, max_size_bytes=650) as writer:
            writer["new"] = b"y" * 10
            assert (writer.get("64"), writer.get("00")) == (None, b"x" * 10), "the one that was not read goes"


def test_a_lower_cap_evicts_the_oldest_when_the_cache_is_opened(path: Path) -> None:
    with SQLiteProgramCache(path) as cache:
        cache.update(dict.fromkeys("abcd", b"x" * 100))
    with SQLiteProgramCache(path, max_size_bytes=250) as cache:
        assert [key for key in "abcd" if cache.get(key)] == ["c", "d"]
        assert cache.stats().evictions == 2


def test_metadata_counts_against_the_cap(path: Path) -> None:
    with SQLiteProgramCache(path, max_size_bytes=200) as cache:
        cache.put_entry("k", Entry(b"x", {"blob": b"m" * 300}))
        assert (cache.get("k"), cache.stats().dropped_writes) == (None, 1)


def test_a_pickled_cache_keeps_its_cap_and_timeout(path: Path) -> None:
    with (
        SQLiteProgramCache(path, max_size_bytes=77, lock_timeout_seconds=0.5) as cache,
        pickle.loads(pickle.dumps(cache)) as twin,
    ):
        assert (twin.path, twin.max_size_bytes) == (str(path), 77)


def test_after_a_fork_each_side_has_connections_of_its_own(cache: SQLiteProgramCache, path: Path) -> None:
    cache["k"] = b"parent"

    def child() -> set[str]:
        open_before_use = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)}
        assert cache["k"] == b"parent"
        cache["c"] = b"child"
        return {name for name in open_before_use if name.startswith(str(path))}

    assert in_child(child) == set()
    assert (cache["k"], cache["c"]) == (b"parent", b"child")


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize("lock", ["_writing", "_reading"])
def test_a_fork_beside_a_thread_that_stays_in_the_database_ends_and_the_child_goes_on(
    cache: SQLiteProgramCache, path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr("lockcache.sqlite.store._FORK_GRACE_SECONDS", 0.05)
    busy = SQLiteProgramCache(path, lock_timeout_seconds=0.05)
    busy["k"] = b"parent"
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with getattr(busy._store, lock):
            inside.set()
            assert leave.wait(60)

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        assert inside.wait(60)

        def child() -> bytes | None:
            busy["c"] = b"child"
            return busy.get("k")

        assert in_child(child) == b"parent"
    finally:
        leave.set()
        thread.join()
    assert (busy["c"], cache["c"]) == (b"child", b"child")
    busy.close()

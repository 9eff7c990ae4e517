# SPDX-License-Identifier: Apache-2.0
"""A SQLiteProgramCache whose file is unsafe, read-only, on a full disk, or locked by another process."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, LockTimeoutError, SQLiteProgramCache, UnsafeCacheDirError
from tests.crash.strace import run_traced
from tests.matrix_sampling import all_but
from tests.unit.sqlite.sqlite_file import locked_elsewhere


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_that_others_may_write_is_refused_with_the_command_that_mends_it(path: Path, mode: int) -> None:
    SQLiteProgramCache(path).close()
    path.chmod(mode)
    with pytest.raises(UnsafeCacheDirError, match="chmod go-w") as error:
        SQLiteProgramCache(path)
    assert error.value.path == str(path)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_symbolic_link_in_the_place_of_any_of_its_files_is_refused(path: Path, tmp_path: Path, suffix: str) -> None:
    SQLiteProgramCache(path).close()
    path.rename(tmp_path / "elsewhere")
    path.with_name(path.name + suffix).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeCacheDirError, match="symbolic link"):
        SQLiteProgramCache(path)


def test_a_directory_or_a_pipe_in_its_place_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        SQLiteProgramCache(path)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(UnsafeCacheDirError):
        SQLiteProgramCache(path)


def test_a_directory_that_anyone_may_write_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafeCacheDirError, match="chmod go-w"):
        SQLiteProgramCache(tmp_path / "db")
    tmp_path.chmod(0o1777)
    SQLiteProgramCache(tmp_path / "db").close()


@pytest.mark.root
@pytest.mark.parametrize("which", ["file", "directory"])
def test_a_file_or_directory_of_somebody_else_is_refused(path: Path, which: str) -> None:
    SQLiteProgramCache(path).close()
    os.chown(path if which == "file" else path.parent, 12345, 12345)
    with pytest.raises(UnsafeCacheDirError, match="uid 12345"):
        SQLiteProgramCache(path)


def check_read_only(path: Path, error: type[OSError]) -> None:
    with SQLiteProgramCache(path, max_size_bytes=10) as cache:  # evicts nothing: it may not
        assert cache.get_entry("k") == Entry(b"code", {"a": 1})
        assert cache.get("absent") is None
        for delete in (lambda: cache.__delitem__("k"), cache.clear):
            with pytest.raises(error):
                delete()
        assert (cache["k"], len(cache), cache.stats().dropped_writes) == (b"code", 40, 0)
        assert [cache.get(str(number)) for number in range(39)] == [b"x" * 100] * 39
        cache.update({"k": b"x", "new": b"x"})
        assert (cache.get("k"), cache.get("new"), cache.stats().dropped_writes) == (None, None, 2)
    with SQLiteProgramCache(path) as cache:
        assert cache["k"] == b"code", "nothing was written, and only who wrote reads no older value"


def fill(path: Path) -> SQLiteProgramCache:
    cache = SQLiteProgramCache(path)
    cache.put_entry("k", Entry(b"code", {"a": 1}))
    cache.update({str(number): b"x" * 100 for number in range(39)})
    return cache


@pytest.mark.root
@pytest.mark.parametrize("has_log", [False, True])
def test_on_a_read_only_file_system_hits_work_and_deletes_raise(
    mount_tmpfs: Callable[..., Path], has_log: bool
) -> None:
    root = mount_tmpfs("size=8m")
    cache = fill(root / "db")
    if has_log:  # what a killed process leaves: the newest entries are in the log only
        saved = {file.name: file.read_bytes() for file in root.iterdir()}
        cache.close()
        for name, content in saved.items():
            (root / name).write_bytes(content)
    else:
        cache.close()
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    check_read_only(root / "db", OSError)
    with pytest.raises(OSError, match="Read-only") as error, SQLiteProgramCache(root / "db") as cache:
        del cache["k"]
    assert error.value.filename == str(root / "db")


@pytest.mark.root
def test_on_a_full_disk_a_write_is_dropped_and_the_older_value_is_not_read(mount_tmpfs: Callable[..., Path]) -> None:
    root = mount_tmpfs("size=1m")
    with SQLiteProgramCache(root / "db") as cache:
        cache["k"] = b"older"
        cache["other"] = b"kept"
        cache["k"] = os.urandom(2 << 20)
        assert (cache.get("k"), cache["other"]) == (None, b"kept")
        assert cache.stats().dropped_writes == 1
        cache["k"] = b"newer"
        assert (cache["k"], len(cache)) == (b"newer", 2)
    with SQLiteProgramCache(root / "db") as cache:
        assert (cache["k"], cache["other"]) == (b"newer", b"kept")


ON_A_FAILING_DISK = """
import sys
from lockcache import SQLiteProgramCache
cache = SQLiteProgramCache(sys.argv[1])
found = cache.get("k")
assert found in (None, b"older"), found
cache["k"] = b"newer" * 1000
found = cache.get("k")
assert found in (None, b"newer" * 1000), found
assert found or cache.stats().dropped_writes == 1
cache.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", ["pread64", "pwrite64", "fcntl", "fsync", "ftruncate"])
@pytest.mark.parametrize("error", ["EIO", "EROFS"])
@pytest.mark.parametrize("when", all_but(["1+"], ["1", "1+", "3+"]))
def test_on_a_failing_disk_a_read_misses_a_write_is_dropped_and_nothing_raises(
    path: Path, call: str, error: str, when: str
) -> None:
    with SQLiteProgramCache(path) as cache:
        cache["k"] = b"older"
        cache["other"] = b"kept"
    names = (str(path), f"{path}-wal", f"{path}-shm")
    assert run_traced(ON_A_FAILING_DISK, path, inject=f"{call}:error={error}:when={when}", paths=names) == 0
    with SQLiteProgramCache(path) as cache:
        assert cache.get("k") in (None, b"older", b"newer" * 1000)
        assert cache.get("other") in (None, b"kept")


@pytest.mark.slow
def test_while_another_process_writes_hits_work_and_a_write_is_dropped_in_bounded_time(path: Path) -> None:
    with SQLiteProgramCache(path, lock_timeout_seconds=0.2) as cache:
        cache["k"], cache["other"] = b"older", b"kept"
        with locked_elsewhere(path) as release:
            assert cache["k"] == b"older"
            cache["k"] = b"newer"
            assert cache.stats().dropped_writes == 1
            assert cache.get("k") is None  # invariant 2 (last write wins): rather nothing than the older value
            assert cache["other"] == b"kept"
            for remove in (lambda: cache.__delitem__("other"), cache.clear):
                with pytest.raises(LockTimeoutError, match="locked"):
                    remove()
            release()
        cache["new"] = b"1"
        assert (cache.get("k"), len(cache)) == (None, 2)
        cache["k"] = b"newest"
        assert cache["k"] == b"newest"
    assert SQLiteProgramCache(path)["k"] == b"newest"


def test_a_read_waits_for_no_thread_that_waits_to_write(path: Path) -> None:
    with SQLiteProgramCache(path, lock_timeout_seconds=60) as cache:
        cache["k"] = b"1"
        with locked_elsewhere(path) as release:
            writer = threading.Thread(target=cache.__setitem__, args=("new", b"2"))
            writer.start()
            for _ in range(200):  # more than are noted before they are written
                assert cache["k"] == b"1"
            assert writer.is_alive()
            release()
            writer.join(30)
        assert (cache["new"], cache.stats().dropped_writes) == (b"2", 0)


@pytest.mark.parametrize(
    "wrong, error", [("5", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_a_timeout_that_is_none_is_an_error_that_shows_it(path: Path, wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="lock_timeout_seconds"):
        SQLiteProgramCache(path, lock_timeout_seconds=wrong)

# SPDX-License-Identifier: Apache-2.0
"""Directories that are moved, deleted, made again, damaged or inherited by a fork under a live cache."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, UnsafeCacheDirError
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.staging import StagedEntry
from tests.processes.crowd import crowd, run_all
from tests.processes.sampler import watch_bytes_in_use
from tests.state_pages import make_newer, state_of
from tests.threads import running
from tests.unit.forked import in_child

MIB = 1 << 20


def _fill(path: str, number: int, cap: int | None) -> None:
    cache = FileStreamProgramCache(path, max_size_bytes=cap)
    for turn in range(20):
        cache[f"{number} {turn}"] = bytes(100_000)


def _bytes_on_disk(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "entries").glob("*/*"))


def test_after_the_directory_was_moved_away_and_made_anew_the_cap_holds_in_the_new_one(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=MIB)
    cache["old"] = b"old"
    cache_path.rename(cache_path.with_name("moved"))
    run_all("fork", _fill, [(str(cache_path), 1, MIB)])
    for turn in range(20):
        cache[f"mine {turn}"] = bytes(100_000)
    assert _bytes_on_disk(cache_path) <= MIB
    assert cache.recount() == [], "all of it was accounted for where it lies"
    assert len(FileStreamProgramCache(cache_path.with_name("moved"))) == 1


def test_a_cap_survives_a_deletion_after_which_somebody_without_one_was_first(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=MIB)
    cache["old"] = b"old"
    shutil.rmtree(cache_path)
    run_all("fork", _fill, [(str(cache_path), 1, None)])
    cache["new"] = b"new"
    assert FileStreamProgramCache(cache_path).max_size_bytes == MIB
    assert _bytes_on_disk(cache_path) <= MIB


def test_beside_the_page_of_a_newer_version_a_program_reads_on_and_stores_nothing(
    cache_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=MIB)
    cache["old"] = b"old"
    state_of(cache_path).unlink()  # a newer one is made next to it, and not written over it
    make_newer(cache_path)
    newer = state_of(cache_path).read_bytes()
    cache["new"] = b"new"
    assert cache.get_or_compute("computed", lambda: b"computed") == b"computed"
    assert (cache.get("old"), cache.get("new"), cache.stats().dropped_writes) == (b"old", None, 2)
    assert ["upgrade lockcache" in record.message for record in caplog.records] == [True]
    del cache["old"]
    cache.clear()
    cache.close()
    assert state_of(cache_path).read_bytes() == newer


def _snapshot(path: Path) -> None:
    """A second name for the accounting page, as ``cp -al`` makes one: the next to open the directory makes it again."""
    os.link(Layout(str(path)).state, path.with_name("snapshot"))


@pytest.mark.parametrize("reserved_first", [False, True])
def test_a_page_that_is_made_anew_has_the_reservations_of_writers_that_had_the_older_one(
    cache_path: Path, reserved_first: bool
) -> None:
    cache = FileStreamProgramCache(cache_path)
    cache["old"] = bytes(500)
    directory = CacheDirectory(str(cache_path), 5.0)
    staged = StagedEntry(directory, entry_name(b"new"), 1000)
    if reserved_first:
        staged.reserve()
    _snapshot(cache_path)
    other = CacheDirectory(str(cache_path), 5.0)
    if not reserved_first:
        staged.reserve()
    assert other.usage().total() == (1500, 1)
    staged.write(bytes(1000), b"", fsync=False)
    staged.publish(fsync=False)
    assert other.usage().total() == (1500, 2)
    assert FileStreamProgramCache(cache_path).recount() == []


@pytest.mark.long
@pytest.mark.root
def test_the_cap_holds_while_the_page_is_made_anew_again_and_again_beside_writers(
    mount_tmpfs: Callable[..., Path], real_blocks: None
) -> None:
    root = mount_tmpfs("size=64m")
    path, cap = root / "cache", 8 * MIB
    FileStreamProgramCache(path, max_size_bytes=cap).close()
    context = multiprocessing.get_context("fork")
    stop = context.Event()

    def write(number: int) -> None:
        cache = FileStreamProgramCache(path, lock_timeout_seconds=30)
        turns = itertools.count()
        while not stop.is_set():
            cache[f"{number} {next(turns)}"] = bytes(50_000)

    with watch_bytes_in_use(root) as finish, crowd("fork", write, [(number,) for number in range(8)]) as writers:
        for _ in range(25):
            _snapshot(path)
            FileStreamProgramCache(path).close()
            path.with_name("snapshot").unlink()
        stop.set()
        writers.results()
        peak, _ = finish()
    assert peak <= cap
    assert FileStreamProgramCache(path).recount() == []


def test_who_starts_while_all_is_deleted_learns_the_cap_as_soon_as_anyone_restores_it(cache_path: Path) -> None:
    knows = FileStreamProgramCache(cache_path, max_size_bytes=MIB)
    knows["old"] = b"old"
    shutil.rmtree(cache_path / "lockcache")
    late = FileStreamProgramCache(cache_path)
    late["first"] = bytes(100_000)
    knows["restores"] = b"it"
    for number in range(30):
        late[f"{number}"] = bytes(100_000)
    assert late.max_size_bytes == MIB
    assert _bytes_on_disk(cache_path) <= MIB


@pytest.mark.parametrize("folder", ["entries", "lockcache/records"])
def test_a_shard_that_others_may_reach_and_write_to_is_refused_at_opening(folder: str, cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path, record_files=True) as cache:
        cache["k"] = b"code"
    [shard] = (cache_path / folder).iterdir()
    shard.chmod(0o777)
    FileStreamProgramCache(cache_path)  # out of reach
    cache_path.chmod(0o755)
    with pytest.raises(UnsafeCacheDirError, match="chmod -R go-w"):
        FileStreamProgramCache(cache_path)


def _open_entries(path: Path) -> list[str]:
    """Entries and staged files that this process has open. A directory that was being listed takes no room."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        is_entry = target.startswith(f"{path}/entries/") and target.count("/") == str(path).count("/") + 3
        if is_entry or target.startswith(f"{path}/tmp/"):
            found.append(target)
    return found


@pytest.mark.long
def test_children_forked_while_threads_read_and_write_keep_no_entry_open(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=4 * MIB)
    stop = threading.Event()

    def work(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            cache[f"{number} {turn % 50}"] = bytes(200_000)
            cache.get(f"{number} {turn % 7}")

    with running(work, [(number,) for number in range(4)], until=stop):
        left = [in_child(lambda: _open_entries(cache_path)) for _ in range(40)]
    assert left == [[]] * 40


def test_a_forked_child_keeps_what_its_own_program_opened(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)
    cache["k"] = b"code"
    name = entry_name(b"k")
    with open(cache_path / "entries" / name[:2] / name[2:], "rb") as file:
        assert in_child(file.read) == b"code"


def test_only_verified_entries_are_served_where_that_is_asked_for(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"code"
    name = entry_name(b"k")
    path = cache_path / "entries" / name[:2] / name[2:]
    copy = path.with_name("copy")
    copy.write_bytes(b"other code")  # as a copy that drops attributes
    copy.rename(path)
    assert FileStreamProgramCache(cache_path)["k"] == b"other code"
    strict = FileStreamProgramCache(cache_path, verified_only=True)
    assert strict.get("k") is None
    assert (strict.stats().misses, strict.stats().corrupt_entries) == (1, 0)
    strict["k"] = b"mine"
    assert strict["k"] == b"mine"

# SPDX-License-Identifier: Apache-2.0
"""A Triton cache, entry by entry: what counts as one, what may go, and what is never touched."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.filestream.accounting.scan import Found
from lockcache.layouts import triton
from lockcache.layouts.triton import TritonFiles
from tests.daemon.directories import disk_usage, photograph
from tests.daemon.triton_format import KERNEL_BYTES, compile_kernel, fill, key_of, put, read_kernel, set_age


@pytest.fixture(autouse=True)
def readers_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of this file reads while it evicts."""
    monkeypatch.setattr(triton, "_READING_SECONDS", 0.0)


@pytest.fixture
def open_files(cache_path: Path, keep_open: Callable[[TritonFiles], TritonFiles]) -> Callable[..., TritonFiles]:
    return lambda settle_seconds=0.0: keep_open(TritonFiles(str(cache_path), settle_seconds))


def found(files: TritonFiles, number: int) -> Found:
    return next(each for each in files.scan() if each.name == key_of(number))


def grow_old(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


# ---- what counts -----------------------------------------------------------------------------------------------------


def test_a_kernel_is_one_entry_with_the_bytes_of_all_its_files_and_the_newest_use(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(3))
    used = cache_path / key_of(1) / "k.ttir"
    os.utime(used, ns=(10**18 + 7, 10**18))
    (cache_path / "notes").write_text("mine")
    entries = {each.name: each for each in open_files().scan()}
    assert set(entries) == {key_of(number) for number in range(3)}
    assert all(each.inode for each in entries.values())
    folder = cache_path / key_of(0)
    assert entries[folder.name].size_bytes == disk_usage(folder)


def test_a_hit_that_a_mount_records_is_a_use(cache_path: Path, open_files: Callable[..., TritonFiles]) -> None:
    fill(cache_path, range(1))
    later_ns = time.time_ns()
    os.utime(cache_path / key_of(0) / "k.cubin", ns=(later_ns, 10**18))
    assert found(open_files(), 0).last_use_ns == later_ns


@pytest.mark.parametrize("name", ["__triton_launcher.cpython-311-x86_64-linux-gnu.so", "k.autotune.json", "plugin.bin"])
def test_a_file_that_stands_alone_is_an_entry_and_can_go(
    cache_path: Path, open_files: Callable[..., TritonFiles], name: str
) -> None:
    cache_path.mkdir(mode=0o700)
    put(cache_path, 0, name, "x" * 100)
    files = open_files()
    assert files.evict(found(files, 0))
    assert files.is_pending
    assert files.finish()
    assert not (cache_path / key_of(0)).exists()
    assert not files.is_pending


def test_what_is_not_tritons_is_neither_counted_nor_removed(
    cache_path: Path, open_files: Callable[..., TritonFiles], tmp_path: Path
) -> None:
    fill(cache_path, range(1))
    for made in (cache_path / key_of(1) / "mine", cache_path / "not-a-key", tmp_path / "outside"):
        made.mkdir(parents=True)
        (made / "k.source").write_text("mine")
    (cache_path / key_of(2)).symlink_to(tmp_path / "outside")
    (cache_path / key_of(3)).write_text("a file")
    os.mkfifo(cache_path / key_of(4))
    files = open_files()
    assert [each.name for each in files.scan()] == [key_of(0)]
    files.reap([key_of(number) for number in range(5)])
    for number in (1, 2, 3, 4):
        assert not files.evict(Found(0, key_of(number), 0, 1))
    assert (cache_path / key_of(1) / "mine" / "k.source").exists()
    assert (tmp_path / "outside" / "k.source").exists()
    assert (cache_path / key_of(3)).read_text() == "a file"


# ---- an entry goes in two steps --------------------------------------------------------------------------------------


def test_an_evicted_kernel_is_a_miss_at_once_while_who_had_seen_it_can_read_all_of_it(
    cache_path: Path, open_files: Callable[..., TritonFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "_READING_SECONDS", 3600.0)
    fill(cache_path, range(1))
    names = {path.name for path in (cache_path / key_of(0)).iterdir()}
    files = open_files()
    assert files.evict(found(files, 0))
    assert not read_kernel(cache_path, 0)
    assert not files.finish()
    assert {path.name for path in (cache_path / key_of(0)).iterdir()} == names - {"__grp__k.json"}
    assert found(files, 0).inode == 0  # on the disk, and no entry
    assert found(files, 0).size_bytes > KERNEL_BYTES / 2


def test_a_kernel_that_is_compiled_again_between_the_steps_stays(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(1))
    files = open_files()
    assert files.evict(found(files, 0))
    compile_kernel(cache_path, 0)
    assert files.finish()
    assert read_kernel(cache_path, 0)
    assert not files.is_pending
    assert found(files, 0).inode


def test_a_compiler_that_has_come_back_and_is_not_done_keeps_what_it_wrote(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(1))
    files = open_files()
    assert files.evict(found(files, 0))
    until_mtimes_differ = os.lstat(cache_path / "lockcache" / "condemned" / key_of(0)).st_ctime_ns + 10**8
    while time.time_ns() < until_mtimes_differ:
        time.sleep(0.01)
    compile_kernel(cache_path, 0, ("source", "ttir"), publish=False)
    files.finish()
    assert (cache_path / key_of(0) / "k.source").exists()
    assert (cache_path / key_of(0) / "k.ttir").exists()


def test_what_a_killed_daemon_had_condemned_is_finished_by_the_next(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(1))
    dead = open_files()
    assert dead.evict(found(dead, 0))
    next_one = open_files()
    assert next_one.is_pending
    assert next_one.finish()
    assert not (cache_path / key_of(0)).exists()


@pytest.mark.root
def test_what_cannot_be_removed_keeps_nothing_else_from_going(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(3))
    stubborn = cache_path / key_of(1) / "k.ptx"
    if os.system(f"chattr +i {stubborn} 2>/dev/null") != 0:
        pytest.skip("this file system knows no immutable files")
    try:
        files = open_files()
        for number in range(3):
            assert files.evict(found(files, number))
        with pytest.raises(PermissionError):
            files.finish()
        assert not files.is_pending
        assert stubborn.exists()
        assert not any((cache_path / key_of(number)).exists() for number in (0, 2))
    finally:
        assert os.system(f"chattr -i {stubborn}") == 0


def test_what_somebody_planted_where_our_own_marks_are_is_not_followed(
    cache_path: Path, open_files: Callable[..., TritonFiles], tmp_path: Path
) -> None:
    cache_path.mkdir(mode=0o700)
    put(cache_path, 0, "driver.so", "x" * 100)
    fill(cache_path, range(1, 3))
    (tmp_path / "outside").write_text("mine")
    files = open_files()
    entries = {number: found(files, number) for number in range(3)}
    condemned = cache_path / "lockcache" / "condemned"
    (condemned / key_of(0)).symlink_to(tmp_path / "outside")
    (condemned / key_of(1)).mkdir()
    os.mkfifo(condemned / key_of(2))
    for number in (0, 1):
        with pytest.raises(OSError, match=key_of(number)):
            files.evict(entries[number])
    assert files.evict(entries[2])
    assert (tmp_path / "outside").read_text() == "mine"


# ---- what may not go -------------------------------------------------------------------------------------------------


def test_an_entry_that_was_used_or_written_since_it_was_chosen_stays(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(2))
    files = open_files()
    first, second = found(files, 0), found(files, 1)
    set_age(cache_path, 0, int(time.time()))
    compile_kernel(cache_path, 1)
    assert not files.evict(first)
    assert not files.evict(second)


def test_a_kernel_without_its_group_file_is_somebodys_work_for_an_hour_and_then_goes(
    cache_path: Path, open_files: Callable[..., TritonFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_path.mkdir(mode=0o700)
    compile_kernel(cache_path, 0, ("source", "ttir"), publish=False)
    staged = cache_path / key_of(0) / "tmp.pid_1_x"
    staged.mkdir()
    (staged / "k.ttgir").write_text("half")
    os.makedirs(cache_path / key_of(1))  # by a compiler that only looked
    files = open_files()
    assert {each.inode for each in files.scan()} == {0}
    names = [key_of(0), key_of(1)]
    files.reap(names)
    assert (staged / "k.ttgir").exists()
    grow_old(monkeypatch, 3601)
    files.reap(names)
    assert not any((cache_path / name).exists() for name in names)


def test_a_kernel_that_is_being_compiled_once_more_stays(
    cache_path: Path, open_files: Callable[..., TritonFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cache_path, range(1))
    put(cache_path, 0, "k.source", "0\n" * 10)
    files = open_files(60.0)
    grow_old(monkeypatch, 1800)
    assert not files.evict(found(files, 0))
    grow_old(monkeypatch, 3601)
    assert files.evict(found(files, 0))


def test_a_key_that_becomes_a_symlink_between_look_and_removal_is_not_followed(
    cache_path: Path, open_files: Callable[..., TritonFiles], tmp_path: Path
) -> None:
    fill(cache_path, range(1))
    files = open_files()
    entry = found(files, 0)
    (cache_path / key_of(0)).rename(tmp_path / "elsewhere")
    (cache_path / key_of(0)).symlink_to(tmp_path / "elsewhere")
    before = photograph(tmp_path / "elsewhere")
    assert not files.evict(entry)
    assert photograph(tmp_path / "elsewhere") == before


def test_a_glance_sees_a_new_key_and_what_comes_into_an_unfinished_one(
    cache_path: Path, open_files: Callable[..., TritonFiles]
) -> None:
    fill(cache_path, range(1))
    files = open_files()
    assert len(list(files.scan())) == 1
    first = files.glance()
    assert files.glance() == first
    compile_kernel(cache_path, 1, ("source",), publish=False)
    second = files.glance()
    assert second != first
    assert len(list(files.scan())) == 2
    third = files.glance()
    put(cache_path, 1, "k.ttir", "1\n")
    assert files.glance() != third

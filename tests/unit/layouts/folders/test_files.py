# SPDX-License-Identifier: Apache-2.0
"""Folders that are entries, of Warp and of TileLang: that each goes whole, and what is never touched."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from lockcache.layouts.folders import files as evicting
from lockcache.layouts.folders.files import FolderFiles
from lockcache.layouts.folders.scan import Program, look
from lockcache.layouts.folders.tilelang import TILELANG
from lockcache.layouts.folders.warp import WARP
from lockcache.lowlevel import Found
from tests.daemon import tilelang_format, warp_format
from tests.daemon.directories import disk_usage
from tests.daemon.warp_format import set_age


class Filling(NamedTuple):
    """A program, and how its cache is filled."""

    program: Program
    compile_one: Callable[..., Path]
    name_of: Callable[[int], str]
    entry_bytes: int
    #: Endings of a binary that is loaded, and of a file that is read before it.
    binary: str
    metadata: str


FILLINGS = {
    "warp": Filling(WARP, warp_format.compile_module, warp_format.name_of, warp_format.MODULE_BYTES, "o", "meta"),
    "tilelang": Filling(
        TILELANG,
        tilelang_format.compile_kernel,
        tilelang_format.name_of,
        tilelang_format.ENTRY_BYTES,
        "so",
        "json",
    ),
}


@pytest.fixture(params=FILLINGS)
def filling(request: pytest.FixtureRequest) -> Filling:
    return FILLINGS[request.param]


@pytest.fixture
def open_files(
    filling: Filling, cache_path: Path, keep_open: Callable[[FolderFiles], FolderFiles]
) -> Callable[..., FolderFiles]:
    return lambda settle_seconds=0.0: keep_open(FolderFiles(filling.program, str(cache_path), settle_seconds))


def test_a_folder_is_one_entry_that_was_used_when_one_of_its_files_was(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles]
) -> None:
    set_age(filling.compile_one(cache_path, 0), 100)
    set_age(filling.compile_one(cache_path, 1), 50)
    used = time.time_ns()
    os.utime(next((cache_path / filling.name_of(0)).glob(f"*.{filling.binary}")), ns=(used, 10**18))
    found = {each.name: each for each in open_files().scan()}
    assert set(found) == {filling.name_of(0), filling.name_of(1)}
    assert all(each.size_bytes == disk_usage(cache_path / name) for name, each in found.items())
    assert found[filling.name_of(0)].last_use_ns == used


def test_an_entry_goes_whole_and_what_is_open_stays_readable(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles]
) -> None:
    for number in range(2):
        filling.compile_one(cache_path, number)
    files = open_files()
    gone, kept = sorted(files.scan(), key=lambda each: each.name)
    path = next((cache_path / gone.name).glob(f"*.{filling.binary}"))
    size = path.stat().st_size
    with path.open("rb") as binary:
        assert files.evict(gone)
        assert len(binary.read()) == size
    assert [each.name for each in files.scan()] == [kept.name]
    assert not (cache_path / gone.name).exists()
    assert not files.evict(gone)
    assert [*(cache_path / "lockcache/condemned").iterdir()] == []


@pytest.mark.parametrize("change", ["used", "written", "added", "replaced"])
def test_an_entry_that_is_not_as_it_was_chosen_stays(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles], change: str
) -> None:
    place, files = filling.compile_one(cache_path, 0), open_files()
    [found] = files.scan()
    if change == "used":
        os.utime(next(place.glob(f"*.{filling.binary}")), ns=(found.last_use_ns + 1, found.last_use_ns))
    elif change == "written":
        next(place.glob(f"*.{filling.metadata}")).write_text("{ }")
    elif change == "added":
        (place / "x.sm90.cubin").write_bytes(b"code")
    else:
        place.rename(cache_path.parent / "old")
        filling.compile_one(cache_path, 0)
    assert not files.evict(found)
    assert place.exists()


def test_one_that_was_replaced_between_the_look_and_the_rename_is_put_back(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, files = filling.compile_one(cache_path, 0), open_files()
    [found] = files.scan()
    seen = look(files._root_fd, filling.program, found.name)
    place.rename(cache_path.parent / "old")
    filling.compile_one(cache_path, 0)
    monkeypatch.setattr(evicting, "look", lambda *_: seen)
    assert not files.evict(found)
    assert sum(path.stat().st_size for path in place.iterdir()) == filling.entry_bytes


def test_nothing_goes_that_changed_lately(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles]
) -> None:
    filling.compile_one(cache_path, 0)
    files = open_files(3600.0)
    [found] = files.scan()
    assert not files.evict(found)


def test_what_a_compiler_has_not_finished_is_counted_and_goes_when_it_is_long_dead(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, files = filling.compile_one(cache_path, 0, is_finished=False), open_files()
    [found] = files.scan()
    assert (found.size_bytes, found.inode) == (disk_usage(cache_path / found.name), 0)
    files.reap([found.name])
    assert built.exists()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3601)
    files.reap([found.name])
    assert not built.exists()


def test_what_is_not_the_programs_is_neither_counted_nor_removed(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles], tmp_path: Path
) -> None:
    outside = filling.compile_one(tmp_path / "outside", 0)
    place = filling.compile_one(cache_path, 1)
    (place / "mine").mkdir()
    links = [filling.name_of(2), filling.name_of(3)]
    (cache_path / links[0]).symlink_to(outside)
    (cache_path / links[1]).write_text("a file")
    (cache_path / "9.9").symlink_to(outside.parent)
    elsewhere = cache_path / "lto" / place.name
    elsewhere.mkdir(parents=True)
    (elsewhere / "dot.lto").write_bytes(b"code")
    files = open_files()
    assert [*files.scan()] == []
    names = [str(place.relative_to(cache_path)), *links, f"9.9/{outside.name}", f"lto/{place.name}"]
    for name in names:
        assert not files.evict(Found(0, name, 0, 1))
    files.reap(names)
    assert [*outside.iterdir()]
    assert (elsewhere / "dot.lto").exists()


def test_what_a_daemon_that_died_had_condemned_is_removed_at_the_next_start(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles]
) -> None:
    place, files = filling.compile_one(cache_path, 0), open_files()
    (place / "below").mkdir()
    (place / "below/file").touch()
    condemned = cache_path / "lockcache/condemned/1.a"
    place.rename(condemned)
    files.prepare()
    assert not condemned.exists()


@pytest.mark.root
def test_what_cannot_be_removed_counts_and_is_tried_again(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles], caplog: pytest.LogCaptureFixture
) -> None:
    place, files = filling.compile_one(cache_path, 0), open_files()
    stubborn = next(each for each in place.rglob("*") if each.is_file())
    if os.system(f"chattr +i {stubborn} 2>/dev/null") != 0:
        pytest.skip("this file system knows no immutable files")
    condemned = cache_path / "lockcache/condemned"
    try:
        (entry,) = [each for each in files.scan() if each.inode]
        with pytest.raises(PermissionError):
            files.evict(entry)
        assert any(each.is_file() for each in condemned.rglob("*"))
        for _ in range(3):
            assert files.staged_bytes() == sum(map(disk_usage, condemned.iterdir()))
            assert files.staged_bytes() > 0
            files.reap(())
        assert caplog.text.count("stays in lockcache/condemned") == 1
    finally:
        assert os.system(f"chattr -R -i {cache_path}") == 0
    files.reap(())
    assert (files.staged_bytes(), [*condemned.iterdir()]) == (0, [])


def test_a_file_that_is_added_to_an_entry_is_seen_at_a_glance(
    filling: Filling, cache_path: Path, open_files: Callable[..., FolderFiles]
) -> None:
    place, files = filling.compile_one(cache_path, 0), open_files()
    [*files.scan()]
    before = files.glance()
    assert files.glance() == before
    os.utime(place, ns=(1, 1))
    (place / "x.sm90.cubin").write_bytes(b"code")
    assert files.glance() != before

"""A Warp cache, module by module: what counts as one, that it goes whole, and what is never touched."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.layouts import warp
from lockcache.layouts.warp import WarpFiles, describe_entry
from lockcache.lowlevel import Found
from tests.daemon.warp_format import MODULE_BYTES, compile_module, name_of, set_age


@pytest.fixture
def open_files(cache_path: Path, keep_open: Callable[[WarpFiles], WarpFiles]) -> Callable[..., WarpFiles]:
    return lambda settle_seconds=0.0: keep_open(WarpFiles(str(cache_path), settle_seconds))


def test_a_module_is_one_entry_in_the_root_or_in_the_folder_of_a_version(
    cache_path: Path, open_files: Callable[..., WarpFiles]
) -> None:
    set_age(compile_module(cache_path, 0), 100)
    set_age(compile_module(cache_path / "1.19.0", 1), 50)
    used = time.time_ns() + 10**9
    os.utime(next((cache_path / name_of(0)).glob("*.meta")), ns=(used, 10**18))
    found = {each.name: each for each in open_files().scan()}
    assert set(found) == {name_of(0), f"1.19.0/{name_of(1)}"}
    assert [each.size_bytes for each in found.values()] == [MODULE_BYTES] * 2
    assert found[name_of(0)].last_use_ns == used
    said = describe_entry(str(cache_path), found[f"1.19.0/{name_of(1)}"])
    assert (said.kind, said.label) == ("o", "simulate_1")


def test_a_module_goes_whole_and_what_is_open_stays_readable(
    cache_path: Path, open_files: Callable[..., WarpFiles]
) -> None:
    for number in range(2):
        compile_module(cache_path / "1.19.0", number)
    files = open_files()
    gone, kept = sorted(files.scan(), key=lambda each: each.name)
    with next((cache_path / gone.name).glob("*.o")).open("rb") as binary:
        assert files.evict(gone)
        assert len(binary.read()) == 4_900
    assert [path.name for path in (cache_path / "1.19.0").iterdir()] == [kept.name.removeprefix("1.19.0/")]
    assert not files.evict(gone)
    assert [*(cache_path / "lockcache/condemned").iterdir()] == []


@pytest.mark.parametrize("change", ["used", "written", "added", "replaced"])
def test_a_module_that_is_not_as_it_was_chosen_stays(
    cache_path: Path, open_files: Callable[..., WarpFiles], change: str
) -> None:
    place, files = compile_module(cache_path, 0), open_files()
    [found] = files.scan()
    if change == "used":
        os.utime(next(place.glob("*.o")), ns=(found.last_use_ns + 1, found.last_use_ns))
    elif change == "written":
        next(place.glob("*.meta")).write_text("{ }")
    elif change == "added":
        (place / "wp_x.sm90.cubin").write_bytes(b"code")
    else:
        place.rename(cache_path.parent / "old")
        compile_module(cache_path, 0)
    assert not files.evict(found)
    assert place.exists()


def test_one_that_was_replaced_between_the_look_and_the_rename_is_put_back(
    cache_path: Path, open_files: Callable[..., WarpFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, files = compile_module(cache_path, 0), open_files()
    [found] = files.scan()
    seen = warp.look(files._root_fd, found.name)
    place.rename(cache_path.parent / "old")
    compile_module(cache_path, 0)
    monkeypatch.setattr(warp, "look", lambda *_: seen)
    assert not files.evict(found)
    assert sum(path.stat().st_size for path in place.iterdir()) == MODULE_BYTES


def test_nothing_goes_that_changed_lately(cache_path: Path, open_files: Callable[..., WarpFiles]) -> None:
    compile_module(cache_path, 0)
    files = open_files(3600.0)
    [found] = files.scan()
    assert not files.evict(found)


def test_what_a_compiler_has_not_finished_is_counted_and_goes_when_it_is_long_dead(
    cache_path: Path, open_files: Callable[..., WarpFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    built, files = compile_module(cache_path, 0, is_finished=False), open_files()
    [found] = files.scan()
    assert (found.size_bytes, found.inode) == (4_000, 0)
    files.reap([found.name])
    assert built.exists()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3601)
    files.reap([found.name])
    assert not built.exists()


def test_what_is_not_warps_is_neither_counted_nor_removed(
    cache_path: Path, open_files: Callable[..., WarpFiles], tmp_path: Path
) -> None:
    outside = compile_module(tmp_path / "outside", 0)
    place = compile_module(cache_path, 1)
    (place / "mine").mkdir()
    (cache_path / name_of(2)).symlink_to(outside)
    (cache_path / "1.19.0").symlink_to(outside.parent)
    (cache_path / name_of(3)).write_text("a file")
    lto = cache_path / "lto"
    lto.mkdir()
    (lto / "dot.lto").write_bytes(b"code")
    files = open_files()
    assert [*files.scan()] == []
    for name in (place.name, name_of(2), name_of(3), f"1.19.0/{outside.name}"):
        assert not files.evict(Found(0, name, 0, 1))
    files.reap([place.name, name_of(2), name_of(3)])
    assert len([*outside.iterdir()]) == 3
    assert (lto / "dot.lto").exists()


def test_what_a_daemon_that_died_had_condemned_is_removed_at_the_next_start(
    cache_path: Path, open_files: Callable[..., WarpFiles]
) -> None:
    place, files = compile_module(cache_path, 0), open_files()
    condemned = cache_path / "lockcache/condemned/1.a"
    place.rename(condemned)
    files.prepare()
    assert not condemned.exists()


def test_a_file_that_is_added_to_a_module_is_seen_at_a_glance(
    cache_path: Path, open_files: Callable[..., WarpFiles]
) -> None:
    place, files = compile_module(cache_path / "1.19.0", 0), open_files()
    [*files.scan()]
    before = files.glance()
    assert files.glance() == before
    os.utime(place, ns=(1, 1))
    (place / "wp_x.sm90.cubin").write_bytes(b"code")
    assert files.glance() != before

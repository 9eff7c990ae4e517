# SPDX-License-Identifier: Apache-2.0
"""Remains of views: of processes that held one when its entry went, loaders, forked children, and of what is none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.entry.views import StagedView

FILES = {"kernel.so": b"\x7fELF" * 100, "kernel.json": b"{}"}


@pytest.fixture
def cache(cache_path: Path) -> FileStreamProgramCache:
    return FileStreamProgramCache(cache_path, lock_timeout_seconds=2.0)


def _files(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).iterdir()}


def _views(root: Path) -> list[Path]:
    return sorted((root / "lockcache/views").glob("??/*"))


def test_views_that_were_held_when_their_entries_went_make_room_again(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=1_000_000, lock_timeout_seconds=2.0)
    for number in range(8):
        cache.put_files(f"{number}", {"x": os.urandom(60_000)})
        held = cache.view_files(f"{number}")
        del cache[f"{number}"]
        assert held is not None
        assert os.path.exists(held)
        del held
    assert len(_views(cache_path)) == 8
    cache.put_files("new", {"x": bytes(700_000)})
    assert cache.get_files("new") == {"x": bytes(700_000)}
    assert (cache.stats().dropped_writes, _views(cache_path), cache.recount()) == (0, [], [])


def _make_deep(view: str, depth: int) -> None:
    """Make folders within folders, with a file in each. By descriptors: the path is longer than a path may be."""
    fd = os.open(view, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("kernel.pyc", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.mkdir("__pycache__", dir_fd=fd)
        inner = os.open("__pycache__", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


@pytest.mark.parametrize("depth", [1, 2, 1500])
@pytest.mark.parametrize("by", ["del", "clear", "a replacement"])
def test_folders_that_a_program_made_in_a_view_go_with_it(
    cache: FileStreamProgramCache, cache_path: Path, depth: int, by: str
) -> None:
    cache.put_files("k", FILES)
    _make_deep(str(cache.view_files("k")), depth)
    if by == "del":
        del cache["k"]
    elif by == "clear":
        cache.clear()
    else:
        cache.put_files("k", {"x": b"another"})
        assert cache.view_files("k") is not None
    assert len(_views(cache_path)) == (by == "a replacement")
    assert cache.recount() == []


@pytest.mark.parametrize("plant", [Path.touch, lambda path: path.symlink_to("/etc")])
def test_what_has_a_views_name_and_is_none_is_taken_away(
    cache: FileStreamProgramCache, cache_path: Path, plant: Callable[[Path], None]
) -> None:
    cache.put_files("k", FILES)
    view = Path(str(cache.view_files("k")))
    plant(view.with_name(f"{'0' * 62}.{'1' * 32}.5000"))
    cache.recount()
    assert _views(cache_path) == [view]


def test_a_child_that_is_forked_while_a_view_is_made_keeps_nothing_of_it(
    cache: FileStreamProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, children = StagedView.fill, []

    def fork_and_fill(staged: StagedView, files: Mapping[str, bytes]) -> None:
        children.append(pid := os.fork())
        if not pid:
            signal.pause()
            os._exit(0)
        fill(staged, files)

    monkeypatch.setattr(StagedView, "fill", fork_and_fill)
    cache.put_files("k", FILES)
    try:
        path = cache.view_files("k")
        assert path is not None
        assert _files(path) == FILES
        assert cache.view_files("k") == path
        assert len(children) == 1, "it is made once"
        del path
        del cache["k"]
        assert cache.recount() == []
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_where_a_view_and_its_entry_just_do_not_fit_the_entry_stays(cache_path: Path) -> None:
    for size in range(440_000, 500_001, 2_000):
        cache = FileStreamProgramCache(cache_path, max_size_bytes=1_000_000, lock_timeout_seconds=2.0)
        cache.put_files("k", {"x": bytes(size)})
        cache.view_files("k")
        assert cache.get_files("k") is not None, size
        cache.clear()

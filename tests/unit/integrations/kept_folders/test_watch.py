# SPDX-License-Identifier: Apache-2.0
"""The watch: which folders appeared by a rename."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache.integrations.kept_folders.watch import Watch
from lockcache.integrations.staged import staged_name


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, Watch]]:
    root, watch = tmp_path / "root", Watch()
    root.mkdir()
    fd = os.open(root, os.O_RDONLY)
    watch.add(fd, "above/")
    os.close(fd)
    yield root, watch
    watch.close()


def test_what_was_renamed_to_its_place_has_moved_and_what_was_made_there_has_not(watched: tuple[Path, Watch]) -> None:
    root, watch = watched
    (root / "made").mkdir()
    (root / "b").mkdir()
    (root / "b").rename(root / "moved")
    (root.parent / "c").mkdir()
    (root.parent / "c").rename(root / "from elsewhere")
    (root / "file").touch()
    (root / "file").rename(root / "file2")
    watch.read()
    assert watch.moved == {"above/moved", "above/from elsewhere"}
    assert watch.has_news


def test_what_is_made_again_in_its_place_has_not_moved_any_more(watched: tuple[Path, Watch]) -> None:
    root, watch = watched
    (root / "b").mkdir()
    (root / "b").rename(root / "k1")
    (root / "k1").rmdir()
    (root / "k1").mkdir()
    watch.read()
    assert watch.moved == set()


def test_what_another_guard_laid_down_has_not_moved(watched: tuple[Path, Watch]) -> None:
    root, watch = watched
    staged = root / staged_name("kept")
    staged.mkdir()
    staged.rename(root / "laid")
    (root / "b").mkdir()
    (root / "b").rename(root / "moved")
    watch.read()
    assert watch.moved == {"above/moved"}


def _pass_a_moment(folder: Path) -> None:
    """Wait until the clock by which the kernel notes changes, which has steps, has gone on."""
    path = folder / "moment"
    path.touch()
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        path.touch()
    path.unlink()


def test_in_a_folder_that_was_just_made_times_say_what_was_renamed_into_it(watched: tuple[Path, Watch]) -> None:
    root, watch = watched
    new = root.parent / "new"
    for path in (root.parent / "staged", new / "in its place", new / "permissions first"):
        path.mkdir(parents=True)
        (path / "file").touch()
    (new / "empty").mkdir()
    (new / "file").touch()
    (new / "link").symlink_to(root)
    _pass_a_moment(root.parent)
    for name in ("permissions first", "empty"):
        (new / name).chmod(0o700)
    (root.parent / "staged").rename(new / "renamed")
    _pass_a_moment(root.parent)
    (new / "permissions first/file").write_text("more")
    fd = os.open(new, os.O_RDONLY)
    watch.add(fd, "new/", is_new=True)
    assert watch.moved == {"new/renamed"}
    (new / "renamed/later").touch()
    watch.moved.clear()
    watch.add(fd, "new/", is_new=True)
    os.close(fd)
    assert watch.moved == set(), "it is watched by now"


def test_without_a_watch_nothing_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    watch.close()
    fd = os.open(tmp_path, os.O_RDONLY)
    watch.add(fd, "")
    os.close(fd)
    watch.read()
    assert (watch.fd, watch.moved) == (-1, set())

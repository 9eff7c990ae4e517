# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of a process: gone when it ends, and when another makes its own after it was killed."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lockcache.filestream.disk import myself
from lockcache.integrations.triton.temporary import TemporaryFolders
from tests.unit.forked import in_child

PROGRAM = """
import os, sys
from lockcache.integrations.triton.temporary import TemporaryFolders
folders = TemporaryFolders("some")
for _ in range(2):
    open(os.path.join(folders.make(), "kernel.so"), "w").close()
print("made", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``$TMPDIR``."""
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "root"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "root"


def planted(root: Path, *, pid: int = 0, host: str = "", user: str = "a1_b2c3d") -> Path:
    """The folder of another process, long ago; by default of one that is dead."""
    owner = myself()
    path = root / f"lockcache-some-{user}.{host or owner.host}.{pid}.{owner.start_ticks}"
    path.mkdir()
    (path / "kernel.so").touch()
    os.utime(path, (1, 1))
    return path


def test_the_last_folder_that_is_removed_takes_the_one_around_it_along(root: Path) -> None:
    folders = TemporaryFolders("some")
    first, second = folders.make(), folders.make()
    assert os.stat(first).st_mode & 0o777 == 0o700
    [around] = root.iterdir()
    assert {Path(first).parent, Path(second).parent} == {around}
    assert os.stat(around).st_mode & 0o777 == 0o700
    Path(first, "kernel.so").touch()
    folders.remove(first)
    assert [*around.iterdir()] == [Path(second)]
    folders.remove(second)
    assert [*root.iterdir()] == []
    third = folders.make()
    assert (folders.has(third), folders.has(second), folders.has("")) == (True, False, False)
    folders.remove(third)


def test_where_a_cleaner_of_temporary_files_was_there_others_are_made(root: Path, tmp_path: Path) -> None:
    folders = TemporaryFolders("some")
    first = Path(folders.make())
    shutil.rmtree(first.parent)
    second = Path(folders.make())
    assert second.is_dir()
    shutil.rmtree(second.parent)
    (tmp_path / "planted").mkdir()
    second.parent.symlink_to(tmp_path / "planted")
    assert Path(folders.make()).resolve().is_relative_to(root)
    assert [*(tmp_path / "planted").iterdir()] == []


def test_a_forked_child_has_none_of_its_parents(root: Path) -> None:
    folders = TemporaryFolders("some")
    mine = folders.make()

    def child() -> tuple[bool, str]:
        folders.remove(mine)
        return folders.has(mine), folders.make()

    has_it, other = in_child(child)  # and ends without removing its own
    assert (has_it, os.path.dirname(other) == os.path.dirname(mine), os.path.isdir(mine)) == (False, False, True)
    os.utime(os.path.dirname(other), (1, 1))
    next_one = TemporaryFolders("some")
    folder = next_one.make()
    assert not os.path.exists(other)
    for each in (folders, next_one):
        each._remove_all()
    assert not os.path.exists(folder)
    assert [*root.iterdir()] == []


def _make(folders: TemporaryFolders) -> None:
    folders.make()


def test_a_child_of_multiprocessing_leaves_none(root: Path) -> None:
    folders = TemporaryFolders("some")
    mine = folders.make()
    child = multiprocessing.get_context("fork").Process(target=_make, args=(folders,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert [*root.iterdir()] == [Path(mine).parent]
    folders.remove(mine)


@pytest.mark.slow
def test_a_process_leaves_none_and_what_a_killed_one_left_goes_when_the_next_makes_its_own(root: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        [folder] = root.iterdir()
        os.utime(folder, (1, 1))
        folders = TemporaryFolders("some")
        mine = folders.make()
        assert {*root.iterdir()} == {folder, Path(mine).parent}, "its owner lives"
        process.kill()
    assert folder.exists()
    next_one = TemporaryFolders("some")
    next_one.remove(next_one.make())
    assert [*root.iterdir()] == [Path(mine).parent]
    folders.remove(mine)
    subprocess.run([sys.executable, "-c", PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    assert [*root.iterdir()] == []


def test_only_what_a_dead_process_of_this_user_made_is_reaped(root: Path, tmp_path: Path) -> None:
    dead = planted(root)
    planted(root, host="0123456789abcdef")
    kept = {
        root / "lockcache-some-other",
        planted(root, pid=os.getpid(), user="mine"),
        root / "lockcache-other-a.b.1.1",
    }
    young = planted(root, user="young")
    os.utime(young)
    for path in (root / "lockcache-some-other", root / "lockcache-other-a.b.1.1"):
        path.mkdir()
        os.utime(path, (1, 1))
    (tmp_path / "precious").mkdir()
    link = root / dead.name.replace("a1_b2c3d", "link")
    link.symlink_to(tmp_path / "precious")
    os.utime(link, (1, 1), follow_symlinks=False)
    file = root / dead.name.replace("a1_b2c3d", "file")
    file.touch()
    os.utime(file, (1, 1))
    kept |= {young, link, file}
    if os.geteuid() == 0:
        theirs = planted(root, user="theirs")
        os.chown(theirs, 65534, 65534)
        kept.add(theirs)
    folders = TemporaryFolders("some")
    folders.remove(folders.make())
    assert {*root.iterdir()} == kept
    assert (tmp_path / "precious").is_dir()

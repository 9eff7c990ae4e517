# SPDX-License-Identifier: Apache-2.0
"""The file of a manifest: many add to it at once, nothing of any is lost, and what is something else stays."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.errors import LockTimeoutError
from lockcache.filestream import turn_to_replace
from lockcache.remote.manifest import MOST_KEYS, Recorder, add_to_manifest, format_manifest, read_manifest

_FORK = multiprocessing.get_context("fork")


def _keys(*numbers: int) -> frozenset[str]:
    return frozenset(f"{number:064x}" for number in numbers)


def test_what_is_added_is_there_and_the_file_is_its_owners(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    assert add_to_manifest(path, _keys(1, 2), 1.0) == _keys(1, 2)
    assert add_to_manifest(path, _keys(2, 3), 1.0) == _keys(1, 2, 3) == read_manifest(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    os.chmod(path, 0o664)
    add_to_manifest(path, _keys(4), 1.0)
    assert os.stat(path).st_mode & 0o777 == 0o644, "who could read it still can; nobody else may write to it"


def test_who_has_nothing_to_add_replaces_nothing_and_takes_no_turn(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    add_to_manifest(path, _keys(1, 2), 1.0)
    before = os.stat(path)
    with turn_to_replace(path, 1.0):
        assert add_to_manifest(path, _keys(2), 0.0) == _keys(1, 2)
        with pytest.raises(LockTimeoutError):
            add_to_manifest(path, _keys(3), 0.0)
    assert os.stat(path).st_ino == before.st_ino


def _add(path: str, rank: int) -> None:
    for number in range(5):
        add_to_manifest(path, _keys(rank * 100 + number, 7), 60.0)


def test_nothing_of_processes_that_add_at_once_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    workers = [_FORK.Process(target=_add, args=(path, rank)) for rank in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert read_manifest(path) == _keys(7, *(rank * 100 + number for rank in range(8) for number in range(5)))
    assert sorted(os.listdir(tmp_path)) == [".m.lock", "m"]


def test_a_full_manifest_keeps_what_it_has(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    listed = add_to_manifest(path, _keys(*range(MOST_KEYS - 1)), 1.0)
    assert len(listed) == MOST_KEYS - 1
    full = add_to_manifest(path, _keys(*range(MOST_KEYS, MOST_KEYS + 5)), 1.0)
    assert len(full) == MOST_KEYS
    assert listed < full
    assert add_to_manifest(path, _keys(MOST_KEYS + 9), 1.0) == full


@pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "folder", "other"])
def test_what_is_not_a_manifest_is_neither_followed_nor_replaced(kind: str, tmp_path: Path) -> None:
    path, target = tmp_path / "m", tmp_path / "target"
    if kind == "symlink":
        target.write_bytes(format_manifest(_keys(1)))
        path.symlink_to(target)
    elif kind == "dangling":
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("my only copy\n")
    before = os.lstat(path)
    with pytest.raises((OSError, ValueError)) as refused:
        add_to_manifest(str(path), _keys(2), 1.0)
    assert str(path) in str(refused.value)
    assert os.path.samestat(os.lstat(path), before)
    assert not target.exists() if kind != "symlink" else read_manifest(str(target)) == _keys(1)


def test_a_symlink_that_is_planted_while_it_is_written_is_replaced_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "m", tmp_path / "target"
    target.write_text("before")
    rename = os.rename

    def planting(source: str, destination: str) -> None:
        path.symlink_to(target)
        rename(source, destination)

    monkeypatch.setattr("lockcache.filestream.output.os.rename", planting)
    add_to_manifest(str(path), _keys(1), 1.0)
    assert target.read_text() == "before"
    assert read_manifest(str(path)) == _keys(1)


@pytest.mark.root
def test_a_full_disk_leaves_the_older_one_and_is_a_warning(
    mount_tmpfs: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = mount_tmpfs("size=64k") / "m"
    add_to_manifest(str(path), _keys(1), 1.0)
    recorder = Recorder(str(path))
    recorder.keys |= _keys(*range(2000))
    with caplog.at_level(logging.WARNING, "lockcache"):
        recorder.report_patiently()
        recorder.report_patiently()
    assert caplog.text.count("No space left on device") == 1
    assert read_manifest(str(path)) == _keys(1)
    assert sorted(each.name for each in path.parent.iterdir()) == [".m.lock", "m"]

# SPDX-License-Identifier: Apache-2.0
"""The file that says that the daemon is at work: made once directories are kept, as old as the last progress."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from lockcache_daemon.observe.log import Report
from lockcache_daemon.run import alive_file
from lockcache_daemon.run.alive_file import AliveFileError
from lockcache_daemon.run.services import FollowingService, _alive_file
from lockcache_daemon.settings.model import Settings


@pytest.fixture
def report() -> Report:
    return Report(as_json=True, out=io.StringIO(), err=io.StringIO())


def settings(path: Path | None) -> Settings:
    return Settings(alive_file=None if path is None else str(path))


def service_for(path: Path, report: Report) -> FollowingService[str]:
    service = FollowingService(lambda each: each.alive_file, _alive_file, settings(path), report)
    service.prepare()
    return service


def test_it_is_as_old_as_the_last_sign_of_life(tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive_file, "_INTERVAL_SECONDS", 0.0)
    heard: list[str] = []
    report.board.beats.append(lambda: heard.append("service manager"))
    service = service_for(tmp_path / "alive", report)
    service.open([])
    os.utime(tmp_path / "alive", (0, 0))
    service.tick()
    assert (tmp_path / "alive").stat().st_mtime == 0
    report.board.beat()
    assert (tmp_path / "alive").stat().st_mtime > 10**9
    assert heard == ["service manager"]
    service.close()
    report.board.beat()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_daemon_left_says_nothing_while_the_next_one_starts(tmp_path: Path, report: Report) -> None:
    (tmp_path / "alive").touch()
    service = service_for(tmp_path / "alive", report)
    report.board.beat()
    assert os.listdir(tmp_path) == []
    service.open([])
    assert os.listdir(tmp_path) == ["alive"]


def test_what_stands_in_its_place_is_replaced_and_not_followed(tmp_path: Path, report: Report) -> None:
    (tmp_path / "theirs").write_text("x")
    os.utime(tmp_path / "theirs", (0, 0))
    (tmp_path / "alive").symlink_to(tmp_path / "theirs")
    service_for(tmp_path / "alive", report).open([])
    report.board.beat()
    assert (tmp_path / "theirs").stat().st_mtime == 0
    assert not (tmp_path / "alive").is_symlink()


def test_a_reload_moves_it_and_keeps_the_old_one_if_the_new_one_cannot_be_made(tmp_path: Path, report: Report) -> None:
    service = service_for(tmp_path / "a", report)
    service.open([])
    service.change(settings(tmp_path / "nowhere" / "b"), [])
    assert os.listdir(tmp_path) == ["a"]
    service.change(settings(tmp_path / "b"), [])
    assert os.listdir(tmp_path) == ["b"]
    service.change(settings(None), [])
    assert os.listdir(tmp_path) == []


def test_a_second_daemon_that_is_refused_does_not_leave_the_first_without_its_file(
    tmp_path: Path, report: Report
) -> None:
    first = service_for(tmp_path / "alive", report)
    first.open([])
    service_for(tmp_path / "alive", report)  # refused before it opens: somebody keeps the directory
    assert not (tmp_path / "alive").exists()
    report.board.beat()
    assert (tmp_path / "alive").exists()


def test_a_file_with_something_in_it_is_not_removed(tmp_path: Path, report: Report) -> None:
    (tmp_path / "alive").write_text("precious")
    with pytest.raises(AliveFileError, match="File exists"):
        service_for(tmp_path / "alive", report).open([])
    assert (tmp_path / "alive").read_text() == "precious"

# SPDX-License-Identifier: Apache-2.0
"""Standing by, without a daemon: when a directory is free."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.filestream.disk.layout import Layout
from lockcache.lowlevel import read_status
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.keeper.single_instance import Instance, Standby


@pytest.fixture
def layout(cache_path: Path) -> Layout:
    (cache_path / "lockcache").mkdir(parents=True)
    return Layout(str(cache_path))


def test_a_directory_is_free_once_its_keeper_lets_go_and_asking_takes_nothing(layout: Layout) -> None:
    keeper, waiting, other = Instance(layout), Standby(layout), Standby(layout)
    keeper.acquire()
    assert not waiting.is_free()
    keeper.release()
    assert waiting.is_free()
    assert other.is_free()
    keeper.acquire()
    assert not waiting.is_free()
    keeper.release()
    waiting.close()
    other.close()


@pytest.mark.slow
def test_a_killed_keeper_leaves_it_free_at_once(layout: Layout) -> None:
    code = (
        "import sys, time; from lockcache.filestream.disk.layout import Layout;"
        "from lockcache_daemon.keeper.single_instance import Instance;"
        "held = Instance(Layout(sys.argv[1])); held.acquire(); print('held', flush=True); time.sleep(100)"
    )
    waiting = Standby(layout)
    with subprocess.Popen([sys.executable, "-c", code, layout.root], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "held\n"
        assert not waiting.is_free()
        keeper.send_signal(signal.SIGKILL)
        keeper.wait()
        assert waiting.is_free()
    waiting.close()


def test_a_directory_that_was_replaced_is_judged_by_the_lock_that_is_there_now(layout: Layout, tmp_path: Path) -> None:
    old = Instance(layout)
    old.acquire()
    waiting = Standby(layout)
    assert not waiting.is_free()
    os.rename(layout.root, tmp_path / "moved")
    os.makedirs(layout.own)
    new = Instance(layout)
    new.acquire()
    old.release()
    assert not waiting.is_free()  # what was locked before is free, and is not the directory any more
    assert not waiting.is_free()
    new.release()
    assert waiting.is_free()
    waiting.close()


def test_a_directory_that_was_deleted_is_free(layout: Layout) -> None:
    waiting = Standby(layout)
    os.rmdir(layout.own)
    assert waiting.is_free()
    assert not os.path.exists(layout.own)
    waiting.close()


@pytest.mark.parametrize("text", ["[" * 1024, '{"pid": [', "null", ""])
def test_a_status_that_a_member_planted_says_nothing_and_ends_nobody(layout: Layout, text: str) -> None:
    Path(layout.daemon_status).write_text(text)
    with pytest.raises(AlreadyServedError, match="its pid is not known yet"):
        raise AlreadyServedError(layout.root, read_status(layout))


def test_who_waits_locks_nothing_through_a_symlink_in_the_place_of_our_folder(layout: Layout, tmp_path: Path) -> None:
    waiting, outside = Standby(layout), tmp_path / "outside"
    outside.mkdir()
    os.rmdir(layout.own)
    os.symlink(outside, layout.own)
    for ask in (waiting.is_free, Instance(layout).acquire):
        with pytest.raises(NotADirectoryError, match="in the way"):
            ask()
    waiting.close()
    assert os.listdir(outside) == []


def test_who_lets_go_removes_no_status_but_its_own(layout: Layout, tmp_path: Path) -> None:
    """A member may link the lock into a folder of its own, so that it passes for the one that is held."""
    keeper, outside = Instance(layout), tmp_path / "outside"
    keeper.acquire()
    outside.mkdir()
    os.link(layout.daemon_lock, outside / "daemon.lock")
    (outside / "daemon.json").write_text("another program's")
    os.rename(layout.own, tmp_path / "moved")
    os.symlink(outside, layout.own)
    keeper.release()
    assert (outside / "daemon.json").read_text() == "another program's"

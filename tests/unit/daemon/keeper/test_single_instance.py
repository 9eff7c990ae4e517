"""Standing by, without a daemon: when a directory is free, and who is seen to wait."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.owners import myself
from lockcache.lowlevel import read_status
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.keeper.single_instance import Instance, Standby, read_standbys


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


def test_who_waits_is_listed_until_it_ends_or_dies(layout: Layout) -> None:
    assert read_standbys(layout) == []
    waiting = Standby(layout)
    waiting.announce()
    (said,) = read_standbys(layout)
    assert said["pid"] == os.getpid()
    dead = os.path.join(layout.own, "standby", f"{os.listdir(os.path.join(layout.own, 'standby'))[0][:16]}.999999999.5")
    Path(dead).write_text(json.dumps({"pid": 999999999, "host": "h", "since": "s"}))
    assert len(read_standbys(layout)) == 1
    assert not os.path.exists(dead)
    waiting.close()
    assert read_standbys(layout) == []


def test_what_somebody_planted_among_them_is_passed_over(layout: Layout, tmp_path: Path) -> None:
    waiting = Standby(layout)
    waiting.announce()
    folder = Path(layout.own) / "standby"
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text('{"pid": 1}')
    (folder / "folder").mkdir()
    (folder / "number").write_text("7")
    assert len(read_standbys(layout)) == 1
    waiting.close()


def forge(folder: Path, number: int) -> Path:
    """Returns the path for the file of one that waits on another host: whether it lives is not known."""
    return folder / f"{'f' * 16}.{number}.0"


SAID = json.dumps({"pid": 7, "host": "planted", "since": "secret"})


def test_a_symlink_in_the_place_of_the_folder_is_not_followed(layout: Layout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    forge(outside, 1).write_text(SAID)
    dead = outside / f"{myself().host}.999999999.5"
    dead.write_text(SAID)
    (Path(layout.own) / "standby").symlink_to(outside)
    waiting = Standby(layout)
    assert read_standbys(layout) == []
    with pytest.raises(OSError, match="in the way"):
        waiting.announce()
    named = outside / waiting._name
    named.write_text(SAID)
    waiting.close()
    assert (dead.read_text(), named.read_text()) == (SAID, SAID)


def test_what_is_no_plain_file_is_neither_opened_nor_removed(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(layout.own) / "standby"
    folder.mkdir()
    (tmp_path / "secret").write_text(SAID)
    os.mkfifo(forge(folder, 1))
    forge(folder, 2).symlink_to(tmp_path / "secret")
    forge(folder, 3).mkdir()
    os.link(tmp_path / "secret", forge(folder, 4))
    (folder / "not a standby").write_text(SAID)
    with contextlib.suppress(PermissionError):
        os.mknod(forge(folder, 5), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    before, opened = sorted(os.listdir(folder)), []
    really = os.open
    monkeypatch.setattr(os, "open", lambda path, *how, **more: opened.append(path) or really(path, *how, **more))
    assert read_standbys(layout) == []
    assert sorted(os.listdir(folder)) == before
    assert not set(before) & set(opened)


def test_nothing_is_written_through_a_file_that_has_another_name(layout: Layout, tmp_path: Path) -> None:
    waiting = Standby(layout)
    waiting.announce()
    (name,) = (Path(layout.own) / "standby").iterdir()
    for plant in (name.hardlink_to, name.symlink_to):
        (tmp_path / "file").write_text("theirs")
        name.unlink()
        plant(tmp_path / "file")
        waiting._due = 0.0
        waiting.announce()
        assert (tmp_path / "file").read_text() == "theirs"
        assert [each["pid"] for each in read_standbys(layout)] == [os.getpid()]
    waiting.close()


@pytest.mark.slow
def test_a_flood_of_names_costs_no_more_than_a_few(layout: Layout) -> None:
    folder = Path(layout.own) / "standby"
    folder.mkdir()
    for number in range(5000):
        forge(folder, number).write_text(SAID)
    assert len(read_standbys(layout)) == 64
    for path in folder.iterdir():
        path.unlink()
    for number in range(2000):
        (folder / f"{myself().host}.{900_000_000 + number}.5").write_text(SAID)
    assert read_standbys(layout) == []
    assert len(os.listdir(folder)) == 2000 - 1024  # the dead go, so many at a look


@pytest.mark.parametrize("text", ["[" * 1024, '{"pid": [', "null", ""])
def test_a_file_that_a_member_planted_among_the_waiting_says_nothing_and_ends_nobody(layout: Layout, text: str) -> None:
    waiting = Standby(layout)
    waiting.announce()
    (Path(layout.own) / "standby" / f"{'f' * 16}.1.0").write_text(text)  # of another host, so that it may be alive
    assert [each["pid"] for each in read_standbys(layout)] == [os.getpid()]
    Path(layout.daemon_status).write_text(text)
    with pytest.raises(AlreadyServedError, match="its pid is not known yet"):
        raise AlreadyServedError(layout.root, read_status(layout))
    waiting.close()


def test_who_waits_locks_nothing_through_a_symlink_in_the_place_of_our_folder(layout: Layout, tmp_path: Path) -> None:
    waiting, outside = Standby(layout), tmp_path / "outside"
    outside.mkdir()
    os.rmdir(layout.own)
    os.symlink(outside, layout.own)
    for ask in (waiting.is_due, Instance(layout).acquire):
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

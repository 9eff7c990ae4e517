# SPDX-License-Identifier: Apache-2.0
"""The place of a server: private, on this node, with a name of any length; and who starts a server."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache.compile_server import open_place, place, read_state, start, starting, stop


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # 108 bytes are all that a socket's address has.
    folder = tmp_path / ("long" * 40)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(place, "_SHARED", ())
    return folder


def test_a_path_of_any_length_is_listened_at_and_connected_to(session: Path) -> None:
    with open_place() as found, found.listen() as listener, found.connect(1.0) as connection:
        assert len(found.path) > 108
        accepted, _ = listener.accept()
        with accepted:
            assert place.peer_uid(accepted) == place.peer_uid(connection) == os.geteuid()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_not_used(session: Path, mode: int) -> None:
    (session / "lockcache").mkdir()
    (session / "lockcache").chmod(mode)
    with pytest.raises(place.NoPlaceError, match="only its user"), open_place():
        pass


def test_a_symlink_a_file_and_a_network_file_system_are_not_used(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (session / "lockcache").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="lockcache"), open_place():
        pass
    (session / "lockcache").unlink()
    (session / "lockcache").write_text("")
    with pytest.raises(OSError, match="lockcache"), open_place():
        pass
    (session / "lockcache").unlink()
    monkeypatch.setattr(place, "is_network", lambda path: True)  # no NFS can be mounted by every user
    with pytest.raises(place.NoPlaceError, match="network"), open_place():
        pass


def test_without_a_folder_of_the_session_one_of_the_node_is_used(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_SHARED", (str(tmp_path),))
    for value in (None, "", "relative", "/missing/folder"):
        if value is None:
            monkeypatch.delenv("XDG_RUNTIME_DIR")
        else:
            monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        with open_place() as found:
            assert found.path == f"{tmp_path}/lockcache-{os.geteuid()}"
            assert os.stat(found.path).st_mode & 0o777 == 0o700


def test_looking_makes_nothing(session: Path) -> None:
    assert read_state() is None
    assert not list(session.iterdir())


def test_what_decides_what_is_loaded_has_a_server_of_its_own(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_place() as one:
        monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
        with open_place() as other:
            assert one.socket_name != other.socket_name


def test_of_many_that_start_one_does(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[int] = []
    done = threading.Event()

    def spawn(listener: socket.socket, lock: int, limits: object) -> None:
        kept = os.dup(lock)  # as the server keeps it
        spawned.append(kept)
        done.wait(10)

    monkeypatch.setattr(starting, "_spawn", spawn)
    found: list[bool] = []

    def one() -> None:
        with open_place() as opened:
            found.append(start(opened))
            done.set()

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False] * 7 + [True]
    assert len(spawned) == 1
    with open_place() as opened:
        assert opened.try_lock() == -1  # although who started it has closed its own
        os.close(spawned[0])
        lock = opened.try_lock()
        assert lock >= 0
        os.close(lock)


def test_an_interpreter_that_cannot_be_run_leaves_no_lock(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with open_place() as opened:
        with pytest.raises(FileNotFoundError):
            start(opened)
        lock = opened.try_lock()
        assert lock >= 0
        os.close(lock)
        with pytest.raises(ConnectionRefusedError):
            opened.connect(1.0)


def test_folders_of_killed_servers_are_removed_and_those_of_others_stay(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_SHARED", (str(tmp_path),))
    with place.work_folder() as first:
        left = Path(first).with_name("1-left.work")
        left.mkdir()
        (left / "head.pch").write_bytes(b"x")
        with place.work_folder() as second:
            assert Path(first).is_dir()
            assert Path(second).is_dir()
            assert not left.exists()
            with open(f"{second}/lock") as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not Path(first).exists()
    assert not Path(second).exists()


def test_a_process_that_is_forked_meanwhile_keeps_neither_lock_nor_socket(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[int] = []

    def fork(*_: object) -> None:
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            signal.pause()
        forked.append(pid)

    monkeypatch.setattr(starting, "_spawn", fork)
    with open_place() as place:
        assert starting.start(place)
        try:
            until = time.monotonic() + 10
            lock = -1
            while lock < 0 and time.monotonic() < until:  # until the child ran what closes them
                lock = place.try_lock()
            assert lock >= 0
            os.close(lock)
        finally:
            os.kill(forked[0], signal.SIGKILL)
            os.waitpid(forked[0], 0)


@pytest.mark.slow
def test_a_server_has_nothing_of_its_starters_environment_but_what_it_needs(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCESS_TOKEN", "secret")
    monkeypatch.setenv("LC_ALL", "C")
    with open_place() as opened:
        assert start(opened)
    state = None
    until = time.monotonic() + 60
    while state is None and time.monotonic() < until:
        state = read_state()
    assert state is not None
    found = Path(f"/proc/{state['pid']}/environ").read_bytes().split(b"\0")
    stop()
    assert b"LC_ALL=C" in found
    assert os.fsencode(f"XDG_RUNTIME_DIR={session}") in found
    assert b"ACCESS_TOKEN=secret" not in found

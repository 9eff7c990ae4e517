"""Wake-ups of a waiter for a lease: the bell, and the holder's death."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.compile_once import turns
from lockcache.filestream.disk import Layout
from lockcache.filestream.disk.wakeups import Sleeper, bell_of, ring
from tests.processes.crowd import HANG_SECONDS
from tests.unit.material import descriptors


@pytest.fixture
def bell(tmp_path: Path) -> Path:
    return tmp_path / "key.bell"


def listening(bell: Path) -> Sleeper:
    sleeper = Sleeper(Layout(str(bell.parent)), str(bell))
    sleeper.listen()
    assert sleeper.has_bell
    return sleeper


def test_a_key_has_one_bell_for_all_generations_of_its_lease():
    assert bell_of("/c/leases/abc.0") == bell_of("/c/leases/abc.7") == "/c/leases/abc.bell"


def test_ringing_wakes_everybody_who_listens_once_and_removes_the_bell(bell: Path) -> None:
    sleepers = [listening(bell) for _ in range(3)]
    assert not sleepers[0].sleep(0)
    ring(Layout(str(bell.parent)), str(bell))
    assert [sleeper.sleep(HANG_SECONDS) for sleeper in sleepers] == [True] * 3
    assert [sleeper.sleep(0) for sleeper in sleepers] == [False] * 3
    assert not bell.exists()


def test_who_goes_on_waiting_listens_for_the_next_ring(bell: Path) -> None:
    sleeper = listening(bell)
    ring(Layout(str(bell.parent)), str(bell))
    assert sleeper.sleep(HANG_SECONDS)
    sleeper.listen()
    assert not sleeper.sleep(0)
    ring(Layout(str(bell.parent)), str(bell))
    assert sleeper.sleep(HANG_SECONDS)


def test_a_bell_that_was_removed_is_made_again(bell: Path) -> None:
    sleeper = listening(bell)
    bell.unlink()
    sleeper.listen()
    ring(Layout(str(bell.parent)), str(bell))
    assert sleeper.sleep(HANG_SECONDS)


def test_ringing_where_nobody_listens_any_more_removes_the_bell(bell: Path) -> None:
    listening(bell)
    assert bell.exists()
    ring(Layout(str(bell.parent)), str(bell))
    ring(Layout(str(bell.parent)), str(bell))
    assert not bell.exists()


def test_a_folder_in_the_place_of_a_bell_costs_no_descriptors(bell: Path) -> None:
    bell.mkdir()
    sleeper, before = Sleeper(Layout(str(bell.parent)), str(bell)), descriptors()
    for _ in range(3):
        sleeper.listen()
    ring(Layout(str(bell.parent)), str(bell))
    assert not sleeper.has_bell
    assert descriptors() == before


def test_in_a_folder_of_a_group_its_members_may_ring(bell: Path) -> None:
    bell.parent.chmod(0o2770)
    listening(bell)
    assert stat.S_IMODE(bell.stat().st_mode) == 0o660


def test_without_a_folder_there_is_no_bell(tmp_path: Path) -> None:
    sleeper = Sleeper(Layout(str(tmp_path / "missing")), str(tmp_path / "missing" / "key.bell"))
    sleeper.listen()
    ring(Layout(str(tmp_path / "missing")), str(tmp_path / "missing" / "key.bell"))
    assert (sleeper.has_bell, sleeper.sleep(0)) == (False, False)


def test_the_death_of_the_process_that_is_watched_wakes_once(bell: Path) -> None:
    sleeper = listening(bell)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        sleeper.watch(process.pid)
        assert sleeper.is_woken
        assert not sleeper.sleep(0)
        process.kill()
        assert sleeper.sleep(HANG_SECONDS)  # also while it is a zombie
        assert not sleeper.sleep(0)
        assert not sleeper.is_woken


@pytest.mark.parametrize("pid", [0, -1, 2**31 - 1, 2**70])
def test_what_is_no_process_is_not_watched(bell: Path, pid: int) -> None:
    sleeper = listening(bell)
    sleeper.watch(pid)
    assert not sleeper.is_woken
    assert not sleeper.sleep(0)


def test_without_pidfds_it_sleeps_all_the_same(bell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.wakeups._pidfd_open", None)
    sleeper = Sleeper(Layout(str(bell.parent)), str(bell))
    sleeper.watch(os.getpid())
    assert not sleeper.sleep(0)


@pytest.mark.slow
def test_a_waiter_asks_for_the_lease_a_few_times_and_not_all_the_time(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time costs 150 us of the processor that the compiler needs; it asked forty times a second."""
    real, asked = turns.take_lease, []

    def count(*arguments):
        asked.append(threading.get_ident())
        return real(*arguments)

    monkeypatch.setattr(turns, "take_lease", count)
    began, may_end = threading.Event(), threading.Event()

    def compute() -> bytes:
        began.set()
        may_end.wait(1.5)  # stands for a compiler
        return b"code"

    holder = threading.Thread(target=lambda: FileStreamProgramCache(cache_path).get_or_compute("k", compute))
    holder.start()
    assert began.wait(HANG_SECONDS)
    assert FileStreamProgramCache(cache_path).get_or_compute("k", lambda: b"never") == b"code"
    holder.join(HANG_SECONDS)
    assert 1 < asked.count(threading.get_ident()) <= 15
    assert os.listdir(cache_path / "lockcache" / "leases") == []


def test_what_is_planted_in_the_place_of_a_bell_is_not_listened_to_nor_written(bell: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for plant in (bell.symlink_to, bell.hardlink_to):
        plant(precious)
        sleeper = Sleeper(Layout(str(bell.parent)), str(bell))
        sleeper.listen()
        assert not sleeper.is_woken
        assert not sleeper.sleep(0)
        ring(Layout(str(bell.parent)), str(bell))
        assert not bell.is_symlink()
        assert not bell.exists()
        assert precious.read_text() == "precious"

# SPDX-License-Identifier: Apache-2.0
"""Wake-ups of a waiter: by its bell, and by the death of a process."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.compile_once import LeaseTurn
from lockcache.filestream.disk import Layout
from lockcache.filestream.disk.waiting import LOCAL, WOKEN, Waiter, ring
from tests.processes.crowd import HANG_SECONDS
from tests.unit.material import descriptors


@pytest.fixture
def bell(tmp_path: Path) -> Path:
    return tmp_path / "key.bell"


def listening(bell: Path) -> Waiter:
    waiter = Waiter(Layout(str(bell.parent)), str(bell), awaits_death=True)
    assert waiter.listen()
    assert not waiter.listen()
    return waiter


def hears(waiter: Waiter) -> bool:
    """Returns whether an event ends its sleep; it also wakes by itself, to look."""
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until:
        if waiter.sleep(until):
            return True
    return False


def test_ringing_wakes_everybody_who_listens_once_and_removes_the_bell(bell: Path) -> None:
    waiters = [listening(bell) for _ in range(3)]
    assert not waiters[0].sleep(0.0)
    ring(Layout(str(bell.parent)), str(bell))
    assert [hears(waiter) for waiter in waiters] == [True] * 3
    assert [waiter.sleep(0.0) for waiter in waiters] == [False] * 3
    assert not bell.exists()


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_bell_says_to_all_who_listened_when_it_was_asked_whether_they_have_what_they_wait_for(
    bell: Path, is_granted: bool
) -> None:
    layout = Layout(str(bell.parent))
    waiters, late = [listening(bell) for _ in range(3)], []

    def ask() -> bool:
        late.append(listening(bell))  # at a bell of its own
        return is_granted

    ring(layout, str(bell), is_granted=ask)
    assert [hears(waiter) and waiter.is_granted for waiter in waiters] == [is_granted] * 3
    assert not late[0].sleep(0.0)
    ring(layout, str(bell))
    assert hears(late[0])
    assert not late[0].is_granted


def test_what_a_bell_said_counts_for_the_sleep_that_it_ended_alone(bell: Path) -> None:
    waiter = listening(bell)
    ring(Layout(str(bell.parent)), str(bell), is_granted=lambda: True)
    assert hears(waiter)
    assert waiter.is_granted
    assert waiter.listen()
    assert not waiter.sleep(0.0)
    assert not waiter.is_granted


def test_who_goes_on_waiting_listens_for_the_next_ring(bell: Path) -> None:
    waiter = listening(bell)
    ring(Layout(str(bell.parent)), str(bell))
    assert hears(waiter)
    waiter.listen()
    assert not waiter.sleep(0.0)
    ring(Layout(str(bell.parent)), str(bell))
    assert hears(waiter)


def test_a_bell_that_was_removed_is_made_again(bell: Path) -> None:
    waiter = listening(bell)
    bell.unlink()
    waiter.listen()
    ring(Layout(str(bell.parent)), str(bell))
    assert hears(waiter)


def test_ringing_where_nobody_listens_any_more_removes_the_bell(bell: Path) -> None:
    listening(bell)
    assert bell.exists()
    ring(Layout(str(bell.parent)), str(bell))
    ring(Layout(str(bell.parent)), str(bell))
    assert not bell.exists()


def test_a_folder_in_the_place_of_a_bell_costs_no_descriptors(bell: Path) -> None:
    bell.mkdir()
    waiter, before = Waiter(Layout(str(bell.parent)), str(bell)), descriptors()
    for _ in range(3):
        waiter.listen()
    ring(Layout(str(bell.parent)), str(bell))
    assert not waiter.has_bell
    assert descriptors() == before


def test_in_a_folder_of_a_group_its_members_may_ring(bell: Path) -> None:
    bell.parent.chmod(0o2770)
    listening(bell)
    assert stat.S_IMODE(bell.stat().st_mode) == 0o660


def test_the_death_of_the_process_that_is_watched_wakes_once(bell: Path) -> None:
    waiter = listening(bell)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        waiter.watch(process.pid)
        assert waiter.pace is WOKEN
        assert not waiter.sleep(0.0)
        process.kill()
        assert hears(waiter)  # also while it is a zombie
        assert not waiter.sleep(0.0)
        assert waiter.pace is LOCAL


def test_without_pidfds_it_sleeps_all_the_same(bell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.waiting._pidfd_open", None)
    waiter = Waiter(Layout(str(bell.parent)), str(bell))
    waiter.watch(os.getpid())
    assert not waiter.sleep(0.0)


@pytest.mark.slow
def test_a_waiter_asks_for_the_lease_a_few_times_and_not_all_the_time(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time costs 150 us of the processor that the compiler needs; it asked forty times a second."""
    real, asked = LeaseTurn.take, []

    def count(*arguments):
        asked.append(threading.get_ident())
        return real(*arguments)

    monkeypatch.setattr(LeaseTurn, "take", count)
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
        waiter = Waiter(Layout(str(bell.parent)), str(bell))
        waiter.listen()
        assert waiter.pace is LOCAL
        assert not waiter.sleep(0.0)
        ring(Layout(str(bell.parent)), str(bell))
        assert not bell.is_symlink()
        assert not bell.exists()
        assert precious.read_text() == "precious"

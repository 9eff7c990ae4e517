"""Whether the owner of a staged file lives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lockcache.filestream.disk.owners import Owner, is_alive, myself, next_serial
from tests.unit.forked import in_child


@pytest.fixture
def other():
    """A living process that waits for us, with what it says of itself."""
    code = "import sys; from lockcache.filestream.disk import myself; print(*myself(), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        host, pid, start = process.stdout.readline().split()
        yield process, Owner(host, int(pid), int(start))
        process.kill()


def test_i_am_alive():
    assert myself().pid == os.getpid()
    assert is_alive(myself()) is True


@pytest.mark.slow
def test_another_process_of_this_host_is_alive_until_it_ends(other):
    process, owner = other
    assert owner.host == myself().host
    assert is_alive(owner) is True
    process.kill()
    process.wait()
    assert is_alive(owner) is False


def test_a_killed_process_that_nobody_waited_for_is_dead(other):
    process, owner = other
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the process table
    assert is_alive(owner) is False


def test_a_later_process_with_the_same_pid_is_not_the_owner(other):
    _, owner = other
    assert is_alive(owner._replace(start_seconds=owner.start_seconds - 1000)) is False
    assert is_alive(myself()._replace(start_seconds=1)) is False


def test_a_clock_stepped_by_a_second_does_not_kill_the_owner(other):
    _, owner = other
    assert is_alive(owner._replace(start_seconds=owner.start_seconds + 1)) is True


def test_of_another_host_nothing_can_be_told():
    assert is_alive(Owner("0" * 16, os.getpid(), myself().start_seconds)) is None
    assert is_alive(Owner("0" * 16, 2**22 - 1, 0)) is None


def test_a_forked_child_is_an_owner_of_its_own():
    parent = myself()
    child = in_child(lambda: tuple(myself()))
    assert (child[0], child[1] != parent.pid) == (parent.host, True)
    assert is_alive(Owner(*child)) is False


def test_serials_differ():
    assert len({next_serial() for _ in range(100)}) == 100

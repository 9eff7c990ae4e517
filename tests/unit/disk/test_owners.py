# SPDX-License-Identifier: Apache-2.0
"""Owners of staged files: whether they live."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.filestream.disk.owners import Owner, is_alive, myself
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
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert myself()[1:] == (os.getpid(), int(fields[19]))
    assert is_alive(myself()) is True


@pytest.mark.parametrize("pid, lives", [(1, True), (0, False), (-1, False), (2**22 + 1, False), (2**70, False)])
def test_a_pid_without_a_start_is_alive_if_a_process_has_it(pid, lives):
    assert is_alive(Owner(myself().host, pid, 0)) is lives


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
    assert is_alive(owner._replace(start_ticks=owner.start_ticks - 1000)) is False
    assert is_alive(myself()._replace(start_ticks=1)) is False


def test_a_start_is_counted_from_the_boot_and_not_by_a_clock(other):
    _, owner = other
    fields = Path(f"/proc/{owner.pid}/stat").read_text().rpartition(")")[2].split()
    assert owner.start_ticks == int(fields[19])
    assert is_alive(owner._replace(start_ticks=owner.start_ticks + 1)) is False


@pytest.mark.root
@pytest.mark.slow
def test_a_step_of_the_clock_kills_nobody(other, tmp_path):
    # The boot time of /proc/stat follows the wall clock; here it is a minute on, for one process that asks.
    _, owner = other
    stepped = tmp_path / "stat"
    stat = Path("/proc/stat").read_text()
    stepped.write_text(re.sub(r"btime (\d+)", lambda found: f"btime {int(found[1]) + 60}", stat))
    code = (
        "import sys; from lockcache.filestream.disk.owners import Owner, is_alive; "
        "print(is_alive(Owner(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))"
    )
    script = 'mount --bind "$0" /proc/stat && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, str(stepped), sys.executable, "-c", code, *map(str, owner)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"


@pytest.mark.root
@pytest.mark.slow
def test_of_a_host_that_does_not_tell_its_boot_nobody_is_taken_for_dead(tmp_path):
    # Two of one name may be two hosts, each of which has its own processes. A child knows its parent.
    script = 'mount -t tmpfs none /proc/sys/kernel/random && exec "$@"'
    code = (
        "import os; from lockcache.filestream.disk.owners import is_alive, myself; me = myself(); "
        "print(*me, flush=True); child = os.fork(); child or print(is_alive(me), flush=True); child and os.wait()"
    )
    said = [
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert [words[3] for words in said] == ["True", "True"]
    owners = [Owner(words[0], int(words[1]), int(words[2])) for words in said]
    assert len({owner.host for owner in owners}) == 2
    assert [is_alive(owner) for owner in owners] == [None, None]


def test_of_another_host_nothing_can_be_told():
    assert is_alive(Owner("0" * 16, os.getpid(), myself().start_ticks)) is None
    assert is_alive(Owner("0" * 16, 2**22 - 1, 0)) is None


def test_a_forked_child_is_an_owner_of_its_own():
    parent = myself()
    child = in_child(lambda: tuple(myself()))
    assert (child[0], child[1] != parent.pid) == (parent.host, True)
    assert is_alive(Owner(*child)) is False

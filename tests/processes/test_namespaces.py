# SPDX-License-Identifier: Apache-2.0
"""Hosts of one name and containers of equal pids in one directory: who lives is never taken for dead.

Each host is a real UTS and pid namespace, in which the process is pid 1, as in a container.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lockcache.filestream.disk.layout import Layout, StagedName, parse_staged_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.disk.owners import Owner, is_alive, myself
from lockcache.filestream.repair.recount import reap
from tests.crash.measure import assert_accounting_is_not_too_low, staged_files
from tests.unit.material import open_directory, set_last_use

pytestmark = [pytest.mark.root, pytest.mark.slow]

# Stages a write, takes a lease and a shard's lock, and holds them until somebody ends it.
HOLDER = """
import sys
from weakref import WeakValueDictionary
from lockcache.filestream.compile_once import LeaseTurn
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import myself
from lockcache.filestream.entry import StagedEntry
root, shard = sys.argv[1:]
directory = CacheDirectory(root, 5.0)
staged = StagedEntry(directory, shard * 32, 1000)
staged.reserve()
lease = LeaseTurn(directory.layout, shard * 32, WeakValueDictionary())
assert lease.take("")
directory.locks[int(shard, 16)].acquire(5.0)
print(*myself(), flush=True)
sys.stdin.read()
"""
REAPER = """
import sys
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.repair import reap
print(reap(CacheDirectory(sys.argv[1], 5.0)))
"""


class Held(NamedTuple):
    """What one holder has, and who it is."""

    process: subprocess.Popen[str]
    owner: Owner
    shard: str


def _on_host(name: str, code: str, *arguments: object) -> list[str]:
    """A command that runs ``code`` as pid 1 of a host of this name. It ends with the command."""
    script = 'hostname "$0" && exec "$@"'
    namespaces = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*namespaces, "sh", "-c", script, name, sys.executable, "-c", code, *map(str, arguments)]


@pytest.fixture
def hold(cache_path: Path) -> Iterator[Callable[[str, str], Held]]:
    """Starts a holder on a host of a name, for a shard."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    started: list[subprocess.Popen[str]] = []

    def start(name: str, shard: str) -> Held:
        process = subprocess.Popen(
            _on_host(name, HOLDER, cache_path, shard), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        host, pid, start_ticks = process.stdout.readline().split()
        return Held(process, Owner(host, int(pid), int(start_ticks)), shard)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _age(root: Path) -> None:
    """Have two minutes pass, for a process that judges by age, and not by asking."""
    for file in [*staged_files(root), *Path(Layout(str(root)).leases).iterdir()]:
        set_last_use(str(file), file.stat().st_mtime - 120)


def _left(root: Path) -> set[tuple[str, str]]:
    """Returns what is staged and what is leased, by shard."""
    staged = [parse_staged_name(file.name) for file in staged_files(root)]
    leases = Path(Layout(str(root)).leases).glob("*.0")
    return {("staged", f"{each.shard:02x}") for each in staged if isinstance(each, StagedName)} | {
        ("lease", file.name[:2]) for file in leases
    }


def _end(held: Held) -> None:
    """SIGKILL. unshare, its parent, ends when it is gone for good."""
    pid = held.process.pid
    os.kill(int(Path(f"/proc/{pid}/task/{pid}/children").read_text()), signal.SIGKILL)
    held.process.wait()


def _has_lock(root: Path, shard: str) -> bool:
    lock = ProcessLock(Layout(str(root)).lock(int(shard, 16)), 1.0)
    try:
        free = lock.try_acquire()
        if free:
            lock.release()
        return not free
    finally:
        lock.close()


ALL = {(what, shard) for what in ("staged", "lease") for shard in ("0a", "0b")}


def _reap_here(root: Path) -> None:
    directory = open_directory(root)
    reap(directory)
    directory.close()


def _reap_on_a_third_host(root: Path) -> None:
    """Reap on a host of the same name, as pid 1."""
    subprocess.run(_on_host("node", REAPER, root), check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("reap_once", [_reap_here, _reap_on_a_third_host])
def test_of_two_hosts_with_one_name_and_equal_pids_only_the_dead_ones_things_go(
    cache_path: Path, hold: Callable[[str, str], Held], reap_once: Callable[[Path], None]
) -> None:
    living, dying = hold("node", "0a"), hold("node", "0b")
    assert (living.owner.pid, dying.owner.pid) == (1, 1)
    assert len({living.owner.host, dying.owner.host, myself().host}) == 3, "a token says more than the name"
    assert is_alive(living.owner) is is_alive(dying.owner) is None
    _age(cache_path)
    reap_once(cache_path)
    assert _left(cache_path) == ALL, "both live"
    assert _has_lock(cache_path, "0a")
    assert _has_lock(cache_path, "0b")
    _end(dying)
    reap_once(cache_path)
    assert not _has_lock(cache_path, "0b"), "it fell with its holder"
    assert _has_lock(cache_path, "0a")
    assert _left(cache_path) == {("staged", "0a"), ("lease", "0a")}
    assert_accounting_is_not_too_low(cache_path)


def test_what_the_dead_of_another_host_left_a_moment_ago_stays_for_a_minute(
    cache_path: Path, hold: Callable[[str, str], Held]
) -> None:
    dead = hold("node", "0a")
    _end(dead)
    _reap_here(cache_path)
    assert ("staged", "0a") in _left(cache_path), "a clock may differ, and a lock may not reach this far"
    _age(cache_path)
    _reap_here(cache_path)
    assert _left(cache_path) == set()


def test_processes_of_one_namespace_know_at_once_that_a_neighbour_died(cache_path: Path) -> None:
    code = (
        "import subprocess, sys; from lockcache.filestream.disk import Owner, is_alive; "
        "ask = 'from lockcache.filestream.disk import myself; print(*myself())'; "
        "said = subprocess.run([sys.executable, '-c', ask],"
        " capture_output=True, text=True, check=True).stdout.split(); "
        "print(is_alive(Owner(said[0], int(said[1]), int(said[2]))))"
    )
    done = subprocess.run(_on_host("node", code), check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"

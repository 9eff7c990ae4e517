# SPDX-License-Identifier: Apache-2.0
"""cuda.core's own cache in the same directory at the same time: neither disturbs the other."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.lowlevel import Layout, measured
from tests.daemon.daemon_process import RunningDaemon, run_daemon, until
from tests.processes.crowd import HANG_SECONDS, run_all
from tests.processes.provable_values import prove, value_for

pytestmark = pytest.mark.cuda

KEYS = [b"%d" % n for n in range(12)]


def _operate(path: str, number: int, start: Any, theirs: bool) -> tuple[int, int]:
    """Puts and gets on shared keys; returns (values of the other kind that were read, corrupt entries seen)."""
    if theirs:
        from cuda.core.utils import FileStreamProgramCache as UpstreamCache

        cache: Any = UpstreamCache(path)
    else:
        cache = FileStreamProgramCache(path, lock_timeout_seconds=HANG_SECONDS)
    draw = random.Random(number)
    start.wait()
    foreign = 0
    for serial in range(250):
        key = draw.choice(KEYS)
        if draw.random() < 0.5:
            cache[key] = value_for(key, number, serial, draw.choice((100, 5000, 40_000)))
        else:
            found = cache.get(key)
            foreign += found is not None and prove(key, found).writer % 2 != number % 2
    if theirs:
        return foreign, 0
    assert cache.stats().dropped_writes == 0
    return foreign, cache.stats().corrupt_entries


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_both_kinds_of_cache_read_and_replace_each_others_entries_whole(cache_path: Path, method: str) -> None:
    start = multiprocessing.get_context(method).Barrier(6)
    done = run_all(method, _operate, [(str(cache_path), n, start, bool(n % 2)) for n in range(6)])
    assert all(foreign > 0 for foreign, _ in done), "each read what the other kind had written"
    assert [corrupt for _, corrupt in done] == [0] * 6
    cache = FileStreamProgramCache(cache_path)
    for key in KEYS:
        found = cache.get(key)
        assert found is None or prove(key, found)
    cache.recount()
    assert cache.stats().bytes == sum(slot.bytes for slot in measured(Layout(cache.path)))
    assert cache.recount() == []


def test_a_capped_cache_of_cuda_core_evicts_our_entries_and_we_evict_its(cache_path: Path) -> None:
    from cuda.core.utils import FileStreamProgramCache as UpstreamCache

    ours = FileStreamProgramCache(cache_path, max_size_bytes=60_000)
    for number in range(20):
        ours[b"ours %d" % number] = value_for(b"ours %d" % number, 0, number, 2000)
    theirs = UpstreamCache(cache_path, max_size_bytes=60_000)
    for number in range(20):
        theirs[b"theirs %d" % number] = value_for(b"theirs %d" % number, 1, number, 2000)
    assert any(ours.get(b"ours %d" % number) is None for number in range(20))
    assert prove(b"theirs 19", ours[b"theirs 19"]) == (1, 19)
    ours.recount()
    for number in range(25):
        ours[b"more %d" % number] = value_for(b"more %d" % number, 0, number, 2000)
    assert theirs.get(b"theirs 0") is None
    assert sum(file.stat().st_size for file in (cache_path / "entries").glob("??/*")) <= 60_000
    assert ours.recount() == []


_KILLED = """
import os, signal, sys
from cuda.core.utils import FileStreamProgramCache
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with FileStreamProgramCache(sys.argv[1]) as cache:
    cache[b"key"] = bytes(int(sys.argv[2]))
"""
_CAP = 4_000_000


def _disk_bytes(path: Path) -> int:
    return sum(each.lstat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def _fill(path: Path) -> int:
    with FileStreamProgramCache(path, max_size_bytes=_CAP) as cache:
        for number in range(40):
            cache[b"%d" % number] = bytes(200_000)
        assert cache.stats().dropped_writes == 0
        return len(cache)


@pytest.mark.slow
@pytest.mark.usefixtures("real_blocks")
def test_what_a_killed_writer_of_cuda_cores_left_is_in_the_cap_for_as_long_as_it_is_there(cache_path: Path) -> None:
    full = _fill(cache_path)
    killed = subprocess.run([sys.executable, "-c", _KILLED, cache_path, "2500000"], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (cache_path / "tmp").glob("entry-*")
    assert 0 < _fill(cache_path) < full
    assert _disk_bytes(cache_path) <= _CAP
    # cuda.core removes it, and nobody tells: the next eviction has the room again, and nothing has to be counted.
    left.unlink()
    assert _fill(cache_path) == full
    with FileStreamProgramCache(cache_path) as cache:
        assert cache.recount() == []


@pytest.mark.slow
@pytest.mark.usefixtures("real_blocks")
def test_what_it_left_over_an_hour_ago_goes(cache_path: Path) -> None:
    full = _fill(cache_path)
    left = cache_path / "tmp" / "entry-left"
    left.write_bytes(bytes(2_500_000))
    os.utime(left, (1, 1))
    assert _fill(cache_path) == full
    assert not left.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("real_blocks")
def test_a_daemon_makes_room_for_what_it_left(cache_path: Path) -> None:
    _fill(cache_path)
    for run in ("--once", "--interval=50ms"):
        left = cache_path / "tmp" / "entry-left"
        left.write_bytes(bytes(2_500_000))
        assert _disk_bytes(cache_path) > _CAP
        if run == "--once":
            assert run_daemon("--max-size", _CAP, run, cache_path).returncode == 0
        else:
            with RunningDaemon("--max-size", _CAP, run, cache_path):
                until(lambda: _disk_bytes(cache_path) <= _CAP)
        assert _disk_bytes(cache_path) <= _CAP
        left.unlink()
        _fill(cache_path)

# SPDX-License-Identifier: Apache-2.0
"""A pyptx directory under the daemon over time: tick by tick, next to the dead and the living."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.integrations.pyptx import CubinCache
from lockcache.integrations.pyptx_directory import files as pyptx_files
from tests.daemon.daemon_process import HANG_SECONDS, RunningDaemon, run_daemon, until
from tests.daemon.keepers import CAP, LOW, Kept
from tests.daemon.pyptx_crowd import (
    SUFFIXES,
    bytes_of,
    entry_of,
    key_of,
    parts,
    prove,
    put_many,
    put_many_as_pyptx,
    read_many,
    store,
)
from tests.processes.crowd import crowd

#: Above what a sweep begins.
HIGH = 950_000


def ticks(kept: Kept, count: int) -> None:
    for _ in range(count):
        kept.keeper.store._walking._due = 0.0  # type: ignore[attr-defined] # the throttle is not what is tested
        kept.keeper.tick()


# ---- what the dead left ----------------------------------------------------------------------------------------------


def test_what_a_killed_writer_left_half_goes_when_it_is_old_and_not_before(
    cache_path: Path, keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(cache_path, range(3))
    for suffix in ("json", "ptx"):
        (cache_path / f"{key_of({'json': 1, 'ptx': 2}[suffix]).hash()}.{suffix}").unlink()
    kept = keep(cache_path, "pyptx")
    assert len(parts(cache_path)) == 3  # its mtimes are old, but it was changed a moment ago
    monkeypatch.setattr(pyptx_files, "_LEFT_SECONDS", 0.0)
    os.utime(cache_path)  # so that it is walked
    ticks(kept, 1)
    assert parts(cache_path) == {key_of(0).hash(): SUFFIXES}


STAGE_AND_HANG = """
import os, sys
from lockcache.integrations.pyptx import CubinCache
from tests.daemon.pyptx_crowd import entry_of
def hang(event, arguments):
    if event == "os.rename":
        print("staged", flush=True)
        input()
sys.addaudithook(hang)
CubinCache(sys.argv[1]).put(entry_of(1))
"""


@pytest.mark.long
def test_what_a_killed_writer_staged_goes_and_a_living_ones_stays(cache_path: Path) -> None:
    store(cache_path, range(1))
    command = [sys.executable, "-c", STAGE_AND_HANG, str(cache_path)]
    staged = cache_path / "lockcache" / "staged"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "staged\n"
        for file in staged.iterdir():
            os.utime(file, (1, 1))
        assert run_daemon("--max-size", CAP, "--once", cache_path).returncode == 0
        assert len(list(staged.iterdir())) == 3
        writer.kill()
        writer.wait(HANG_SECONDS)
    assert run_daemon("--max-size", CAP, "--once", cache_path).returncode == 0
    assert list(staged.iterdir()) == []


# ---- tick by tick ----------------------------------------------------------------------------------------------------


def test_the_cap_holds_after_two_ticks(cache_path: Path, keep: Callable[..., Kept]) -> None:
    kept = keep(cache_path, "pyptx")
    for turn, by_pyptx in enumerate((False, True, False)):
        store(cache_path, range(turn * 200, turn * 200 + 200), by_pyptx=by_pyptx)
        assert bytes_of(cache_path) > CAP
        ticks(kept, 2)
        assert bytes_of(cache_path) <= LOW
    assert len(kept.said("sweep")) == 3


def test_an_entry_that_is_used_after_it_was_chosen_stays(cache_path: Path, keep: Callable[..., Kept]) -> None:
    store(cache_path, range(3))
    files = keep(cache_path, "pyptx").keeper.store.files  # type: ignore[attr-defined]
    chosen = {found.name: found for found in files.scan()}
    assert CubinCache(cache_path).get(key_of(0)) is not None
    CubinCache(cache_path).put(entry_of(1, writer=5))
    assert [files.evict(chosen[key_of(number).hash()]) for number in range(3)] == [False, False, True]
    assert parts(cache_path) == {key_of(number).hash(): SUFFIXES for number in (0, 1)}


def test_entries_under_a_lock_that_somebody_keeps_are_passed_over(cache_path: Path, keep: Callable[..., Kept]) -> None:
    store(cache_path, range(200))
    first = key_of(0).hash()
    with open(cache_path / "lockcache" / "locks" / first[0], "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = keep(cache_path, "pyptx")
        ticks(kept, 3)
        assert bytes_of(cache_path) <= HIGH
        assert parts(cache_path)[first] == SUFFIXES
    ticks(kept, 1)
    assert kept.said("error") == []


# ---- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_readers_get_whole_entries_while_writers_write_and_the_daemon_evicts(cache_path: Path) -> None:
    store(cache_path, range(1))
    with RunningDaemon("--max-size", CAP, cache_path) as daemon:
        with (
            crowd("spawn", put_many, [(str(cache_path), writer, 300) for writer in range(2)]) as writing,
            crowd("spawn", put_many_as_pyptx, [(str(cache_path), 1000, 300)]) as strangers,
            crowd("spawn", read_many, [(str(cache_path), reader, 1500) for reader in range(2)]) as reading,
        ):
            assert writing.results() == [0, 0]
            assert strangers.results() == [0]
            done = reading.results()
        assert sum(hits for hits, _ in done) > 0
        assert [corrupt for _, corrupt in done] == [0, 0]
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        until(lambda: bytes_of(cache_path) <= CAP)
        assert daemon.end(signal.SIGTERM) == 0
        assert daemon.errors() == ""
    for number in [*range(400), *range(1000, 1300)]:
        found = CubinCache(cache_path).get(key_of(number))
        assert found is None or prove(found) is None


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle_of_a_sweep_leaves_whole_entries(cache_path: Path, number: signal.Signals) -> None:
    store(cache_path, range(1500))
    with RunningDaemon("--max-size", "100k", "--interval", "10ms", cache_path, starts=1) as daemon:
        until(lambda: len(parts(cache_path)) < 1500)
        assert daemon.end(number) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    halves = [each for each in parts(cache_path).values() if each != SUFFIXES]
    assert len(halves) <= (1 if number == signal.SIGKILL else 0)
    assert all("json" not in each for each in halves)
    assert (cache_path / "lockcache" / "daemon.json").exists() == (number == signal.SIGKILL)

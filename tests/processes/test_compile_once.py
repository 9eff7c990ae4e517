# SPDX-License-Identifier: Apache-2.0
"""Compile-once across real processes: how many compute, and what death, delay and failure of one do to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache, InMemoryProgramCache, TieredProgramCache, Turn
from lockcache.filestream.compile_once.lease import Holder
from lockcache.filestream.disk import Pace, Waiter, waiting
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.disk.owners import myself
from tests.matrix_sampling import EXHAUSTIVE
from tests.processes.crowd import HANG_SECONDS, crowd, run_all
from tests.threads import run_threads, running
from tests.unit.forked import in_child

KEYS = [b"%d" % number for number in range(8)]


def _code(key: bytes) -> bytes:
    return key * 1000


def _want_all(path: str, compile_seconds: float, log: str, golden: str = "") -> int:
    """Get every key, computing what is missing; each computation is a line in ``log``.

    ``golden``: a directory behind that of ``path``, to be read only.
    """
    cache: Any = FileStreamProgramCache(path, lock_timeout_seconds=HANG_SECONDS)
    if golden:
        cache = TieredProgramCache(InMemoryProgramCache(), cache, FileStreamProgramCache(golden, read_only=True))

    def compile_(key: bytes) -> Entry:
        with open(log, "ab", buffering=0) as file:
            file.write(b"%s\n" % key)
        time.sleep(compile_seconds)  # stands for a compiler; nothing here waits for it to be over
        return Entry(_code(key), {"key": key})

    for key in KEYS:
        entry = cache.get_or_compute_entry(key, lambda key=key: compile_(key))
        assert (entry.code, entry.metadata["key"]) == (_code(key), key)
    return cache.stats().puts


@pytest.mark.parametrize("method,processes", [pytest.param("spawn", 16, marks=EXHAUSTIVE), ("spawn", 8), ("fork", 64)])
def test_a_cold_herd_compiles_each_key_once(method: str, processes: int, cache_path: Path, tmp_path: Path) -> None:
    log = tmp_path / "compiles"
    puts = run_all(method, _want_all, [(str(cache_path), 0.2, str(log))] * processes)
    assert sorted(log.read_bytes().split()) == KEYS
    assert sum(puts) == len(KEYS)
    assert _leases(cache_path) == []


def test_a_cold_herd_before_a_directory_that_is_only_read_compiles_once_what_it_lacks(
    cache_path: Path, tmp_path: Path
) -> None:
    log, golden = tmp_path / "compiles", tmp_path / "golden"
    with FileStreamProgramCache(golden) as filled:
        for key in KEYS[:3]:
            filled.put_entry(key, Entry(_code(key), {"key": key}))
    puts = run_all("fork", _want_all, [(str(cache_path), 0.2, str(log), str(golden))] * 8)
    assert sorted(log.read_bytes().split()) == KEYS[3:]
    assert sum(puts) == len(KEYS)
    assert _leases(cache_path) == []


def _leases(path: Path) -> list[str]:
    return sorted(os.listdir(path / "lockcache" / "leases"))


def _hold(path: str, ready: Any, child_too: bool) -> None:
    """Compute for ever. With ``child_too``, while a child that inherited everything lives on."""

    def compute() -> bytes:
        if child_too and os.fork() == 0:
            signal.pause()
        ready.send(os.getpid())
        signal.pause()
        return b""

    FileStreamProgramCache(path).get_or_compute("k", compute)


@pytest.mark.parametrize("child_too", [False, True], ids=["alone", "with a living child"])
def test_a_killed_holder_frees_its_waiters(child_too: bool, cache_path: Path) -> None:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    holder = context.Process(target=_hold, args=(str(cache_path), sender, child_too))
    holder.start()
    try:
        assert receiver.poll(HANG_SECONDS)
        receiver.recv()
        cache = FileStreamProgramCache(cache_path, lease_timeout_seconds=HANG_SECONDS * 10)
        results: list[bytes] = []
        waiter = threading.Thread(target=lambda: results.append(cache.get_or_compute("k", lambda: b"mine")))
        waiter.start()
        assert not results
        os.kill(holder.pid, signal.SIGKILL)
        waiter.join(HANG_SECONDS)
        assert results == [b"mine"]
    finally:
        holder.kill()
        holder.join()
        _kill_orphans()
    assert _leases(cache_path) == []


def _kill_orphans() -> None:
    """End the children that a killed holder left behind: they are this test's by now only in name."""
    import psutil

    for process in psutil.process_iter(["cmdline", "ppid"]):
        if process.info["ppid"] == 1 and process.info["cmdline"] == psutil.Process().cmdline():
            process.kill()


def test_a_child_forked_inside_compute_does_not_hold_the_lease(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path)

    def compute() -> bytes:
        # The child is a caller of its own: it must wait for its parent, or, impatient, take over; never deadlock.
        child = lambda: FileStreamProgramCache(cache_path, lease_timeout_seconds=0.05).get_or_compute("k", lambda: b"c")  # noqa: E731
        assert in_child(child) == b"c"
        assert len(_leases(cache_path)) == 1, "the parent's lease is still there"
        return b"parent"

    assert cache.get_or_compute("k", compute) == b"c", "the child published first"


def test_when_nothing_can_be_stored_compilations_do_not_take_turns(cache_path: Path) -> None:
    """Each of two compiles only while the other does: waiting for each other they would never end."""
    cache = FileStreamProgramCache(cache_path, max_size_bytes=10)
    assert cache.get_or_compute("k", lambda: b"x" * 100) == b"x" * 100  # dropped, and noted
    inside = threading.Barrier(2)

    def compute() -> bytes:
        inside.wait(HANG_SECONDS)
        return b"x" * 100

    results: list[bytes] = []
    run_threads(lambda: results.append(FileStreamProgramCache(cache_path).get_or_compute("k", compute)), [()] * 2)
    assert results == [b"x" * 100] * 2


@pytest.mark.parametrize("change_of_mind", ["looks up something else", "closes the cache"])
def test_with_compile_once_a_caller_that_changes_its_mind_frees_the_others(
    change_of_mind: str, cache_path: Path
) -> None:
    cache = FileStreamProgramCache(cache_path, compile_once=True)
    assert cache.get("k") is None
    assert len(_leases(cache_path)) == 1
    cache.get("other") if change_of_mind == "looks up something else" else cache.close()
    other = FileStreamProgramCache(cache_path, compile_once=True, lease_timeout_seconds=HANG_SECONDS * 10)
    with crowd("fork", _lookup, [(str(cache_path),)]) as running:
        assert running.results() == [None]
    other.close()
    cache.close()


def _lookup(path: str) -> bytes | None:
    with FileStreamProgramCache(path, compile_once=True, lease_timeout_seconds=HANG_SECONDS * 10) as cache:
        return cache.get("k")


def test_with_compile_once_a_lookup_may_take_no_turn(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, compile_once=True)
    assert cache.get("k", turn=False) is None
    assert cache.get("k", b"default", turn=False) == b"default"
    assert not (cache_path / "lockcache" / "leases").exists()
    assert cache.get("other") is None
    assert cache.get("k", turn=False) is None
    assert len(_leases(cache_path)) == 1, "a lookup without a turn is not a change of mind"
    cache["other"] = b"code"
    assert (_leases(cache_path), cache.get("other", turn=False)) == ([], b"code")
    cache.close()


HOLDER = """
import os, signal, sys
from lockcache import FileStreamProgramCache

turn = FileStreamProgramCache(sys.argv[1]).begin("k", label="a kernel")
print("it has the turn", flush=True)
sys.stdin.readline()
exec(sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "end", ["turn.give_up(); sys.stdin.read()", "", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_however_a_turn_ends_in_one_process_it_wakes_who_waits_in_another(
    end: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiter looks by itself only after minutes, so that what is in time for it is that it was woken."""
    asleep, woken, sleep = threading.Event(), [], Waiter.sleep

    def noted(self: Waiter, seconds: float) -> bool:
        asleep.set()
        woken.append(sleep(self, seconds))
        return woken[-1]

    monkeypatch.setattr(Waiter, "sleep", noted)
    monkeypatch.setattr(waiting, "WOKEN", Pace(*[HANG_SECONDS * 10] * 5))
    cache = FileStreamProgramCache(cache_path, lease_timeout_seconds=HANG_SECONDS * 20)
    with subprocess.Popen([sys.executable, "-c", HOLDER, cache_path, end], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout.readline() == "it has the turn\n"
        results: list[Any] = []
        waiter = threading.Thread(target=lambda: results.append(cache.begin("k")), daemon=True)
        waiter.start()
        assert asleep.wait(HANG_SECONDS)
        assert results == []
        holder.stdin.write("\n")
        holder.stdin.flush()
        waiter.join(HANG_SECONDS)
        assert [type(found) for found in results] == [Turn]
        assert set(woken) == {True}
    assert results[0].store(b"mine").code == cache["k"] == b"mine"
    assert _leases(cache_path) == []


def test_with_compile_once_a_lookup_and_a_computation_of_one_key_do_not_meet(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, compile_once=True)
    assert cache.get("k") is None
    assert cache.get_or_compute("k", lambda: b"code") == b"code"
    assert cache.get("a") is None
    assert cache.get_or_compute("b", lambda: b"code") == b"code"
    assert _leases(cache_path) == [], "asking for b ended the turn of a"


def test_with_compile_once_what_a_compilation_cost_is_remembered(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.filestream.compile_once.costs._LEAST_NS", 1)
    cache = FileStreamProgramCache(cache_path, compile_once=True)
    assert cache.get("k") is None
    cache["k"] = b"code"
    assert cache._parts.once.costs.cost_ns(entry_name(b"k")) > 0


def _want(path: str, keys: int, log: str) -> None:
    cache = FileStreamProgramCache(path, lock_timeout_seconds=HANG_SECONDS)

    def compile_() -> bytes:
        with open(log, "ab", buffering=0) as file:
            file.write(b".")
        return b"code"

    for number in range(keys):
        cache.get_or_compute(f"{number}", compile_)


def test_what_a_dead_holder_left_behind_makes_nobody_compile_twice(cache_path: Path, tmp_path: Path) -> None:
    """Its file says that it began long ago; the next holder locks that file before it writes its own name."""
    keys, log = 60, tmp_path / "compiles"
    layout = FileStreamProgramCache(cache_path)._directory.layout
    os.makedirs(layout.leases, mode=0o700)
    dead = Holder("host", myself().host, 1, "", -(10**12))
    for number in range(keys):
        Path(layout.lease(entry_name(b"%d" % number), 0)).write_text(json.dumps(dead._asdict()))
    run_all("fork", _want, [(str(cache_path), keys, str(log))] * 8)
    assert log.stat().st_size == keys


def test_closing_beside_lookups_is_no_error(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, compile_once=True, lease_timeout_seconds=0)
    stop = threading.Event()

    def look_up(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            cache.get(f"{number} {turn % 50}")

    with running(look_up, [(number,) for number in range(4)], until=stop):
        for _ in range(200):
            cache.close()

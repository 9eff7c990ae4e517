"""Writers and readers on the same keys, as real processes: invariants 1 and 2."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from tests.processes.crowd import METHODS, run_all
from tests.processes.history import Read, Write, operate, stale_reads
from tests.processes.proof import Proof, prove, value_for

PROCESSES = 6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"record_files": True}], ids=["attributes", "record files"])
def test_no_read_is_torn_foreign_or_older_than_the_last_write_that_had_returned(
    cache_path: Path, method: str, options: dict[str, Any]
) -> None:
    start = multiprocessing.get_context(method).Barrier(PROCESSES)
    histories = run_all(
        method, operate, [(str(cache_path), writer, 500, 4, start, options) for writer in range(PROCESSES)]
    )
    reads = sum(isinstance(event, Read) for history in histories for event in history)
    assert reads > 300
    assert stale_reads(histories) == []


def test_last_write_wins_under_a_cap_that_forces_evictions(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path, max_size_bytes=400_000).close()
    start = multiprocessing.get_context("fork").Barrier(PROCESSES)
    histories = run_all("fork", operate, [(str(cache_path), w, 400, 16, start, {}) for w in range(PROCESSES)])
    assert stale_reads(histories) == []


def test_the_judge_of_histories_finds_a_stale_read_and_a_read_from_the_future() -> None:
    old, new = Write(b"k", Proof(0, 0), 1, 2), Write(b"k", Proof(1, 0), 3, 4)
    assert stale_reads([[old, new, Read(b"k", old.proof, 5, 6)]])
    assert stale_reads([[old, new, Read(b"k", new.proof, 2.2, 2.5)]])
    assert stale_reads([[old, Write(b"k", None, 3, 4), Read(b"k", old.proof, 5, 6)]])
    assert not stale_reads([[old, new, Read(b"k", old.proof, 3.5, 6), Read(b"k", new.proof, 3.5, 6)]])


def _threads_in_a_process(path: str, process: int, start: Any) -> list[tuple[bytes, Proof]]:
    cache = FileStreamProgramCache(path, lock_timeout_seconds=60)
    last: dict[bytes, Proof] = {}
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        writer = process * 100 + thread
        try:
            for serial in range(60):
                shared, own = b"shared %d" % (serial % 3), b"own %d %d" % (writer, serial % 5)
                cache[shared] = value_for(shared, writer, serial, 3000)
                cache[own] = value_for(own, writer, serial, 3000)
                last[own] = Proof(writer, serial)
                found = cache.get(own)
                assert found is not None
                assert prove(own, found) == last[own]
                prove(shared, cache[shared])
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that reports
            failures.append(error)

    start.wait()
    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert cache.stats().dropped_writes == 0
    return list(last.items())


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_threads_in_processes_share_one_directory_and_each_finds_its_own_last_value(
    cache_path: Path, method: str
) -> None:
    start = multiprocessing.get_context(method).Barrier(4)
    results = run_all(method, _threads_in_a_process, [(str(cache_path), process, start) for process in range(4)])
    cache = FileStreamProgramCache(cache_path)
    for key, proof in (item for result in results for item in result):
        assert prove(key, cache[key]) == proof
    assert len(cache) == 3 + 4 * 4 * 5
    assert cache.recount() == []

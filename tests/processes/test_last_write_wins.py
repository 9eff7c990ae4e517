"""Threads of several processes on the same keys: invariants 1 and 2.

Processes on the same keys, judged by the times of all their calls, are scenarios: ``same-key``, ``record-files`` and
``evict-rewrite`` in ``tests/stress/test_scenarios.py``.
"""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from tests.processes.crowd import METHODS, run_all
from tests.processes.proof import Proof, prove, value_for


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

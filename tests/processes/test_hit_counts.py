# SPDX-License-Identifier: Apache-2.0
"""Processes that count hits at once lose none while locks work, and one that is killed loses only its own."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import read_worth
from lockcache.filestream.accounting.state import FILE_BYTES
from lockcache.filestream.accounting.worth import MOST_HITS
from lockcache.filestream.disk import Layout, entry_name
from tests.state_pages import policy_of, state_of

_FORKED = get_context("fork")
_KEYS = [b"%d" % number for number in range(20)]


def _hit(path: str, rounds: int) -> None:
    cache = FileStreamProgramCache(path)
    for _ in range(rounds):
        for key in _KEYS:
            assert cache.get(key) == b"code"
        while cache._reader.uses:  # the lock may be another process's for longer than a report waits
            cache._report.report_patiently()


def _hit_for_ever(path: str) -> None:
    while True:
        _hit(path, 1)


@pytest.mark.slow
def test_processes_that_count_at_once_lose_no_hit(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        for key in _KEYS:
            cache[key] = b"code"
    processes = [_FORKED.Process(target=_hit, args=(str(cache_path), 10)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    counts = read_worth(Layout(str(cache_path)))
    assert [counts.of(entry_name(key)) for key in _KEYS] == [40] * len(_KEYS)


@pytest.mark.long
def test_a_process_that_is_killed_while_it_counts_leaves_a_page_that_counts(cache_path):
    with FileStreamProgramCache(cache_path, max_size_bytes=10**6) as cache:
        for key in _KEYS:
            cache[key] = b"code"
    layout, before = Layout(str(cache_path)), 0
    for number in range(25):
        process = _FORKED.Process(target=_hit_for_ever, args=(str(cache_path),))
        process.start()
        while sum(read_worth(layout).of(entry_name(key)) for key in _KEYS) <= before:
            assert process.exitcode is None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        counts = read_worth(layout)
        before = sum(counts.of(entry_name(key)) for key in _KEYS)
        assert all(number < counts.of(entry_name(key)) <= MOST_HITS for key in _KEYS)
        if before >= MOST_HITS * len(_KEYS):
            break
    assert os.path.getsize(state_of(cache_path)) == FILE_BYTES
    assert policy_of(str(cache_path)).max_size_bytes == 10**6
    with FileStreamProgramCache(cache_path) as cache:
        assert all(cache.get(key) == b"code" for key in _KEYS)


def test_a_forked_child_does_not_count_its_parents_hits_again(cache_path):
    cache = FileStreamProgramCache(cache_path)
    cache[b"k"] = b"code"
    cache.get(b"k")
    process = _FORKED.Process(target=cache.close)
    process.start()
    process.join()
    assert read_worth(Layout(str(cache_path))).of(entry_name(b"k")) == 0
    cache.close()
    assert read_worth(Layout(str(cache_path))).of(entry_name(b"k")) == 1

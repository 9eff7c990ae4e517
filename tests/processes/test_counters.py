# SPDX-License-Identifier: Apache-2.0
"""The counters that programs share: every way for a process to end, fork, and many that report at once."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.accounting import read_counters
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.inspect.misses import MOST_MISSES, read_misses
from lockcache.reports import Counters
from tests.processes.counting import hit_and_return, hit_with
from tests.processes.crowd import HANG_SECONDS, run_all


def shared(root: Path) -> Counters:
    return read_counters(Layout(str(root)))


@pytest.fixture
def filled(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"key"] = b"code"
    return cache_path


@pytest.mark.long
@pytest.mark.parametrize("ending", ["returns", "raises", "collected", "closed", "stats"])
def test_what_a_process_counted_is_added_however_it_ends(filled: Path, ending: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.processes.counting", str(filled), ending],
        check=ending != "raises",
        stderr=subprocess.DEVNULL,
        timeout=HANG_SECONDS,
    )
    found = shared(filled)
    assert (found.hits, found.misses, found.puts) == (3, 1, 1)
    assert (found.reports, found.hit_ratio) == (2, 0.75)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_report_at_their_end(filled: Path, method: str) -> None:
    run_all(method, hit_and_return, [(str(filled), 5)] * 3)
    assert shared(filled).hits == 15


def test_a_forked_child_adds_only_what_it_counted_itself(filled: Path) -> None:
    cache = FileStreamProgramCache(filled)
    hit_with(cache, 7)  # not reported yet when the children come
    run_all("fork", hit_with, [(cache, 2)] * 3)
    assert shared(filled).hits == 6
    cache.close()
    assert shared(filled).hits == 13


SUMMED = """
import gc, multiprocessing, os, sys
from lockcache import Entry, FileStreamProgramCache

def use(path, hits):
    cache = FileStreamProgramCache(path)
    for _ in range(hits):
        cache.get_or_compute("k", lambda: Entry(b"code", {"compile_cost_ns": 2 * 10**9}))

use(sys.argv[1], 2)
gc.collect()
kept = FileStreamProgramCache(sys.argv[1])
kept.get("k")
kept["another"] = b"code"
if len(sys.argv) > 2:
    child = multiprocessing.get_context("fork").Process(target=use, args=(sys.argv[1], 3))
    child.start()
    child.join()
"""


def _summary(path: Path, *arguments: str, **variables: str) -> list[str]:
    command = [sys.executable, "-c", SUMMED, str(path), *arguments]
    ended = subprocess.run(
        command, env={**os.environ, **variables}, check=True, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    return [line.partition(": ")[2] for line in ended.stderr.splitlines()]


def test_a_program_that_is_asked_to_sums_up_all_its_caches_in_one_line_at_its_end(cache_path: Path) -> None:
    assert _summary(cache_path, LOCKCACHE_SUMMARY="1") == ["2 hits, 2 compilations, 4.0 s of compiling saved"]
    assert _summary(cache_path, LOCKCACHE_SUMMARY="0") == []


@pytest.mark.parametrize(
    "variable, counted",
    [
        ("LOCKCACHE_READONLY", "3 hits, 1 compilation, 6.0 s of compiling saved"),
        ("LOCKCACHE_DISABLE", "0 hits, 3 compilations"),
    ],
)
def test_a_program_whose_caches_store_nothing_says_so(cache_path: Path, variable: str, counted: str) -> None:
    _summary(cache_path)
    before = (shared(cache_path), len(FileStreamProgramCache(cache_path)))
    [line] = _summary(cache_path, LOCKCACHE_SUMMARY="1", **{variable: "1"})
    assert line == f"{counted}, nothing stored ({variable} is set)"
    assert (shared(cache_path), len(FileStreamProgramCache(cache_path))) == before


def _miss_and_report(path: str, number: int) -> None:
    with FileStreamProgramCache(path) as cache:
        for turn in range(5):
            key = b"%d %d" % (number, turn)
            state(key, {"code": number, "option arch": "sm_90"}, "saxpy")
            cache[key] = b"code"
            cache.stats()


def test_misses_of_many_processes_at_once_are_whole_or_left_out(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path).close()
    run_all("fork", _miss_and_report, [(str(cache_path), number) for number in range(8)])
    names = {entry_name(b"%d %d" % (number, turn)) for number in range(8) for turn in range(5)}
    found = read_misses(Layout(str(cache_path)))
    assert len(found) == len({miss.name for miss in found}) == MOST_MISSES
    assert {miss.name for miss in found} <= names
    assert {part.value for miss in found for part in miss.parts if part.name == "option arch"} == {"sm_90"}


def _report_until_killed(path: str, beat: Connection) -> None:
    number = 0
    with FileStreamProgramCache(path) as cache:
        while True:
            number += 1
            state(b"%d" % number, {"code": number, "option arch": "sm_90"}, "saxpy")
            cache[b"%d" % number] = b"code"
            cache.stats()
            beat.send(number)


def test_a_process_that_is_killed_while_it_reports_leaves_whole_misses_and_a_ring_to_go_on_with(
    cache_path: Path,
) -> None:
    FileStreamProgramCache(cache_path).close()
    context = multiprocessing.get_context("fork")
    for most in range(1, 9):
        ours, its = context.Pipe(duplex=False)
        process = context.Process(target=_report_until_killed, args=(str(cache_path), its))
        process.start()
        while ours.recv() < most:
            pass
        process.kill()
        process.join(HANG_SECONDS)
        found = read_misses(Layout(str(cache_path)))
        assert {part.value for miss in found for part in miss.parts if part.name == "option arch"} == {"sm_90"}
    _miss_and_report(str(cache_path), 99)
    names = [miss.name for miss in read_misses(Layout(str(cache_path)))]
    assert names[:5] == [entry_name(b"99 %d" % turn) for turn in reversed(range(5))]

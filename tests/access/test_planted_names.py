# SPDX-License-Identifier: Apache-2.0
"""Very many names where others of a group may make them: a put and a survey look at few of them, counted in calls.

A call that Python makes of C takes about 0.1 us of a look at a name; seconds would say how busy the machine is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import StagedName, myself
from lockcache.lowlevel import Layout, find_drift, staged
from tests.matrix_sampling import diagonals

pytestmark = pytest.mark.slow

NAMES = 5_000
# A look at each name is some calls; a look by each shard is 256 times as many.
MOST_CALLS = 100 * NAMES
OLD_SECONDS = 7200
FOREIGN = "ab" * 8


def staged_by(host: str, shards: int) -> Callable[[Layout, int], str]:
    return lambda layout, i: f"{layout.tmp}/{StagedName(i % shards, 4096, host, 4_000_000 + i, 5, i)}"


#: Where names are planted, as the path of the name of a number.
PLANTED: dict[str, Callable[[Layout, int], str]] = {
    "tmp, of another host": staged_by(FOREIGN, 256),
    "tmp, of another host, in one shard": staged_by(FOREIGN, 1),
    "tmp, of dead processes": staged_by(myself().host, 256),
    "tmp, of another program": lambda layout, i: f"{layout.tmp}/entry-{i}",
    "turns": lambda layout, i: layout.lease(f"{i:064x}", 0),
    "turns, bells": lambda layout, i: layout.lease(f"{i:064x}", 0).rpartition(".")[0] + ".bell",
    "entries": lambda layout, i: f"{layout.entry_shard(i % 8)}/planted-{i}",
    "records": lambda layout, i: f"{layout.record_shard(i % 8)}/{i:062x}",
    "quarantine": lambda layout, i: f"{layout.quarantine}/20260101T000000.{i:09d}Z.{i:064x}.digest",
}


def calls_of(work: Callable[[], object]) -> int:
    """Returns how many functions of C the work calls."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture
def full(cache_path: Path) -> Iterator[FileStreamProgramCache]:
    with FileStreamProgramCache(cache_path, max_size_bytes=400_000) as cache:
        for number in range(500):
            cache[b"%d" % number] = bytes(800)
        yield cache


@pytest.mark.parametrize("where, age_seconds", diagonals(PLANTED, [0, OLD_SECONDS], 2))
def test_a_put_and_a_survey_look_at_few_planted_names(full, where, age_seconds):
    layout, planted_at = Layout(full.path), time.time() - age_seconds
    for number in range(NAMES):
        path = PLANTED[where](layout, number)
        if number < 8:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.utime(path, (planted_at, planted_at))
    evictions = full.stats().evictions
    with FileStreamProgramCache(full.path) as cache:
        calls = calls_of(lambda: cache.__setitem__(b"new", bytes(30_000)))
        assert cache[b"new"] == bytes(30_000)
        assert cache.stats().evictions or full.stats().evictions > evictions
    assert calls < MOST_CALLS
    assert calls_of(lambda: (find_drift(layout), staged(layout))) < MOST_CALLS
    with FileStreamProgramCache(full.path) as cache:
        assert cache[b"new"] == bytes(30_000)

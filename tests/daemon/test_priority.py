# SPDX-License-Identifier: Apache-2.0
"""Eviction by value: what is expensive to rebuild outlives what is cheap, with a real daemon and real writers."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.eviction import change_pins
from lockcache.filestream.policy import Policy
from lockcache.lowlevel import CacheDirectory, Layout, entry_name
from tests.daemon.daemon_process import RunningDaemon, run_daemon
from tests.daemon.directories import bytes_on_disk, make_directory
from tests.state_pages import set_policy

SIZE = 5000
EXPENSIVE = 40
EXPENSIVE_NS = 100 * 10**9
CHEAP_NS = 10**7


def put(cache: FileStreamProgramCache, key: str, cost_ns: int) -> None:
    cache.put_entry(key, Entry(key.encode().ljust(SIZE, b"."), {"compile_cost_ns": cost_ns}))


def put_expensive(root: Path) -> list[str]:
    keys = [f"expensive {number}" for number in range(EXPENSIVE)]
    with FileStreamProgramCache(root) as cache:
        for key in keys:
            put(cache, key, EXPENSIVE_NS)
    return keys


def put_cheap(root: str, writer: int) -> int:
    with FileStreamProgramCache(root) as cache:
        for number in range(400):
            put(cache, f"cheap {writer}, {number}", CHEAP_NS)
        return cache.stats().dropped_writes


def read(root: Path, keys: list[str]) -> list[str]:
    with FileStreamProgramCache(root) as cache:
        found = {key: cache.get(key) for key in keys}
    assert all(value is None or value == key.encode().ljust(SIZE, b".") for key, value in found.items())
    return [key for key, value in found.items() if value is not None]


@pytest.mark.long
def test_a_running_daemon_follows_an_operator_who_changes_the_policy(cache_path: Path) -> None:
    make_directory(cache_path)
    with RunningDaemon("--max-size", "1M", "--policy", "lru", cache_path) as daemon:
        set_policy(cache_path, Policy(1_000_000, by_operator=True, priority="value"))
        assert daemon.wait_for("cap")["policy"] == "value"
        keys = put_expensive(cache_path)
        put_cheap(str(cache_path), 0)
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        daemon.end(15)
    assert read(cache_path, keys) == keys


def test_without_a_cap_and_a_policy_of_its_own_the_daemon_goes_by_the_directorys(cache_path: Path) -> None:
    keys = put_expensive(cache_path)
    put_cheap(str(cache_path), 0)
    set_policy(cache_path, Policy(1_000_000, priority="value"))
    assert run_daemon("--once", cache_path).returncode == 0
    assert bytes_on_disk(cache_path) <= 950_000
    assert read(cache_path, keys) == keys


@pytest.mark.parametrize("budget", [("--max-entries", "5"), ("--max-age", "1s")])
def test_no_budget_of_the_daemon_takes_what_is_pinned(cache_path: Path, budget: tuple[str, str]) -> None:
    keys = put_expensive(cache_path)
    for key in keys:
        os.utime(Layout(str(cache_path)).entry(entry_name(key.encode())), (1000, 1000))
    with closing(CacheDirectory(str(cache_path), 5.0)) as directory:
        change_pins(directory, add=[entry_name(key.encode()) for key in keys[:3]])
    assert run_daemon("--once", *budget, cache_path).returncode == 0
    left = read(cache_path, keys)
    assert len(left) < EXPENSIVE
    assert left[:3] == keys[:3]

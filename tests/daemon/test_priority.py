"""``--policy cost``: what is expensive to rebuild outlives what is cheap, with a real daemon and real writers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.policy import Policy
from tests.daemon.daemon_process import RunningDaemon, run_daemon, until
from tests.daemon.directories import accounting_is_exact, bytes_on_disk, make_directory
from tests.processes.crowd import crowd
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
@pytest.mark.parametrize("policy, survivors", [("cost", EXPENSIVE), ("lru", 0)])
def test_entries_that_were_dear_to_compile_outlive_cheap_ones_that_were_used_later(
    cache_path: Path, policy: str, survivors: int
) -> None:
    make_directory(cache_path)
    with RunningDaemon("--max-size", "1M", "--policy", policy, cache_path) as daemon:
        keys = put_expensive(cache_path)
        with crowd("spawn", put_cheap, [(str(cache_path), number) for number in range(3)]) as writers:
            assert writers.results() == [0] * 3
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        until(lambda: bytes_on_disk(cache_path) <= 950_000)
        daemon.end(15)
    assert len(read(cache_path, keys)) == survivors
    assert accounting_is_exact(cache_path)


@pytest.mark.long
def test_a_running_daemon_follows_an_operator_who_changes_the_policy(cache_path: Path) -> None:
    make_directory(cache_path)
    with RunningDaemon("--max-size", "1M", cache_path) as daemon:
        set_policy(cache_path, Policy(1_000_000, by_operator=True, priority="cost"))
        assert daemon.wait_for("cap")["policy"] == "cost"
        keys = put_expensive(cache_path)
        put_cheap(str(cache_path), 0)
        assert daemon.wait_for("sweep")["evicted_entries"] > 0
        daemon.end(15)
    assert read(cache_path, keys) == keys


def test_without_a_cap_and_a_policy_of_its_own_the_daemon_goes_by_the_directorys(cache_path: Path) -> None:
    keys = put_expensive(cache_path)
    put_cheap(str(cache_path), 0)
    set_policy(cache_path, Policy(1_000_000, priority="cost"))
    assert run_daemon("--once", cache_path).returncode == 0
    assert bytes_on_disk(cache_path) <= 950_000
    assert read(cache_path, keys) == keys


@pytest.mark.long
def test_a_dry_run_counts_what_a_pass_by_cost_evicts(cache_path: Path) -> None:
    put_expensive(cache_path)
    put_cheap(str(cache_path), 0)
    rehearsed = run_daemon("--max-size", "1M", "--policy", "cost", "--dry-run", "--json", cache_path)
    done = run_daemon("--max-size", "1M", "--policy", "cost", "--once", "--json", cache_path)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    [sweep] = [event for event in said if event["event"] == "sweep"]
    assert json.loads(rehearsed.stdout)["evicted_entries"] == sweep["evicted_entries"] > 0
